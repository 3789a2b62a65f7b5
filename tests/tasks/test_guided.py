"""Guided alignment: words to pieces, the loss and its gradient, and what a guided head learns."""

import json

import numpy as np
import pytest
import torch

import regard
from regard.analysis import read_pharaoh, write_pharaoh
from regard.attention.observer import record
from regard.cli import main
from regard.data import generate, train_tokenizer
from regard.decoding import Hypothesis
from regard.layers.role import ENCODER_DECODER
from regard.tasks import TranslateTask
from regard.tasks.alignment_scores import score_alignments
from regard.tasks.guided import GuidedAlignment, guided_attention, recorded, word_numbers
from regard.training import Silent, read_config

REVERSE = {
    "task": "translate",
    "data": {"name": "reverse", "count": 12, "valid_count": 2, "test_count": 5, "sentences": 4},
    "model": {"kind": "transformer", "layers": 2, "dim": 12, "heads": 3, "hidden": 7},
    "loss": {"guided": 0.3},
    "training": {"steps": 1},
}


@pytest.fixture
def alignments(tmp_path):
    """Write the alignment of the generated pairs of "reverse"."""

    def write(split: str = "train", count: int = 12) -> str:
        sizes = [len(source) for source, _ in generate("reverse", split, count=count, seed=1)]
        lines = [write_pharaoh({(i, size - 1 - i) for i in range(size)}) for size in sizes]
        file = tmp_path / f"{split}.txt"
        file.write_text("\n".join(lines) + "\n")
        return str(file)

    return write


def make(file: str, *overrides: str) -> TranslateTask:
    return TranslateTask.from_config(read_config(REVERSE, [f"data.alignments={file}", *overrides]))


def test_pieces_belong_to_the_words_that_spaces_separate():
    text = "나는  학교에, 간다 !"
    bpe = train_tokenizer("bpe", [text] * 3, size=270)
    found = word_numbers(bpe, text)
    pieces = bpe.tokens(bpe.encode(text))
    joined = ["".join(p for p, n in zip(pieces, found, strict=True) if n == w) for w in range(4)]
    assert [one.replace("▁", "").replace("‥", "") for one in joined] == text.split()
    words = train_tokenizer("words", ["nothing known"])
    assert max(word_numbers(words, text)) == 3  # though every word is unknown
    assert word_numbers(words, "a, b") == [0, 0, 1]
    letters = train_tokenizer("characters", [text])
    assert word_numbers(letters, "ab c") == [0, 1, 2, 3]
    assert word_numbers(None, np.zeros((3, 2))) == [0, 1, 2]


def test_every_piece_of_a_word_is_linked_to_every_piece_of_its_translation():
    words = train_tokenizer("words", ["a b"])
    pairs = regard.data.Pairs.collect([("yes, sir", "oui monsieur!")])
    gold = read_pharaoh(["0-0 0?1"])
    guided = GuidedAlignment.of(gold, pairs, words, words)
    assert sorted(map(tuple, guided.links[0].tolist())) == [
        (s, t) for s in (0, 1) for t in (0, 1, 2)
    ]
    with pytest.raises(ValueError, match=r"pair 1: the link 2-0, .* outside of its 2"):
        GuidedAlignment.of(read_pharaoh(["2-0"]), pairs, words, words)


def formula(weights: torch.Tensor, task: TranslateTask, index: list[int]) -> torch.Tensor:
    """−Σₜ Σₛ Gₜₛ log Aₜₛ, written out; of the reversed word t is linked to its length − 1 − t."""
    total = weights.new_zeros(())
    for row, number in enumerate(index):
        length = len(task.train[number][0])
        for t in range(length):
            total = total - torch.log(weights[row, t, length - 1 - t])
    return total


def test_the_loss_and_its_gradient_are_those_of_the_formula(alignments):
    task = make(alignments(), "model.dropout=0.0")
    torch.manual_seed(3)
    model = task.build().double()
    batch = task.batch(0, 0)
    first, second = (layer.memory_attention for layer in model.decoder.layers)
    assert guided_attention(model) is first
    seen = []
    first.register_forward_pre_hook(lambda _, given: seen.append(given))
    loss = task.loss(model, batch)
    (x, memory) = seen[0]
    q, k = first.query_projection(x)[..., :4], first.key_projection(memory)[..., :4]  # head 0 of 3
    scores = q @ k.mT / 2.0  # √4
    padding = torch.arange(k.shape[1]) >= batch.source_lengths[:, None, None]
    weights = scores.masked_fill(padding, -torch.inf).softmax(-1)
    expected = 0.3 * formula(weights, task, batch.index.tolist())
    plain = TranslateTask.from_config(read_config({**REVERSE, "loss": {}})).loss(model, batch)
    torch.testing.assert_close(loss.total - plain.total, expected, rtol=1e-9, atol=1e-9)
    parameters = list(model.parameters())
    options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
    found = torch.autograd.grad(loss.total - plain.total, parameters, **options)
    for one, other in zip(found, torch.autograd.grad(expected, parameters, **options), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert found[-1].abs().max() < 1e-12  # of the output
    assert not second.query_projection.weight.grad


@pytest.mark.parametrize(
    "model",
    [
        "{kind='luong', embedding=3, hidden=5}",
        "{kind='luong', embedding=3, hidden=5, feeding=true}",
        "{kind='luong', embedding=3, hidden=5, attention='predictive', window=20}",
        "{kind='bahdanau', embedding=3, hidden=5}",
        "{kind='gnmt', embedding=3, hidden=5, layers=2}",
    ],
)
def test_the_only_map_of_a_recurrent_model_is_guided(model, alignments):
    """The map of single steps gives the loss, and differences of it the gradient."""
    task = make(alignments(), f"model={model}")
    torch.manual_seed(3)
    model = task.build().double()
    batch = task.batch(0, 0)

    def guided() -> torch.Tensor:
        with recorded([guided_attention(model)]) as calls:
            model(batch.source, batch.source_lengths, batch.target[:, :-1])
        return task.guided.loss(calls, batch)

    state, rows = model.start(model.encode(batch.source, batch.source_lengths)), []
    for now in batch.target[:, :-1].unbind(1):
        with record() as calls:
            _, state = model.step(now, state)
        (call,) = (c for c in calls if getattr(c.module, "role", None) == ENCODER_DECODER)
        rows.append(call.map.dense().reshape(len(now), 1, -1))
    loss = guided()
    torch.testing.assert_close(loss, formula(torch.cat(rows, 1), task, batch.index.tolist()))
    loss.backward()
    weight = model.encoder.recurrent.layers[0].weight_ih_l0
    with torch.no_grad():
        step = torch.randn_like(weight) * 1e-5
        weight += step
        above = guided()
        weight -= 2 * step
        below = guided()
    slope = float((weight.grad * step).sum())
    assert float(above - below) / 2 == pytest.approx(slope, rel=1e-5)


def test_pairs_without_links_have_no_loss(tmp_path):
    file = tmp_path / "none.txt"
    file.write_text("\n" * 12)
    task = make(str(file))
    plain = TranslateTask.from_config(read_config({**REVERSE, "loss": {}}))
    model = task.build().eval()
    batch = task.batch(0, 0)
    torch.testing.assert_close(task.loss(model, batch).total, plain.loss(model, batch).total)


def test_held_out_pairs_keep_their_lines(tmp_path):
    rows = [("ab"[n % 2] * (n + 1), "c" * (n + 1)) for n in range(40)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows))
    (tmp_path / "links.txt").write_text("".join(f"{n}-{n}\n" for n in range(40)))
    settings = [f"data.train={tmp_path}/pairs.tsv", "data.name=", "data.count="]
    task = make(f"{tmp_path}/links.txt", *settings)
    assert len(task.train) < 40
    for (source, _), links in zip(task.train, task.guided.links, strict=True):
        assert links.tolist() == [[len(source) - 1, len(source) - 1]]
    assert set(task.fingerprint()) == {"train", "valid", "alignments"}


@pytest.mark.parametrize(
    ("lines", "overrides", "complaint"),
    [
        (["0-0"] * 11, [], "each of 12 pairs, got 11"),
        (["0-0"] * 11 + ["99-0"], [], "train.txt: pair 12: the link 99-0"),
        (["0:0"] * 12, [], "line 1: '0:0' is not a link"),
        (["0-0"] * 12, ["loss.guided=0.0"], "both data.alignments and loss.guided"),
        (["0-0"] * 12, ["data.alignments="], "both data.alignments and loss.guided"),
    ],
)
def test_wrong_alignments_are_a_clear_error(lines, overrides, complaint, tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=complaint):
        make(str(file), *overrides)


def test_a_model_without_attention_cannot_be_guided(alignments):
    task = make(alignments(), "model={kind='plain', embedding=3, hidden=5}")
    with pytest.raises(ValueError, match="this one has none"):
        task.loss(task.build(), task.batch(0, 0))


def test_evaluate_prints_the_error_rates_of_hand_made_gold(alignments, tmp_path, capsys):
    """Gold is what the average of the first layer attends to, but for one link."""
    run = tmp_path / "run"
    settings = [f"data.alignments={alignments()}"]
    model = regard.train(REVERSE, run, settings=settings, progress=Silent())
    lines, count = [], 0
    for source, target in model.pairs("test"):
        tokens = (*model.target.encode(target), model.target.eos)
        trace = model.trace(source, written=Hypothesis(tokens, 0.0))
        best = trace["decoder.layers.0.memory_attention"].map.dense().mean(0).argmax(-1)
        found = {(int(best[t]), t) for t in range(len(target))}
        count += len(found)
        lines.append(found)
    sure = [set(found) for found in lines]
    moved = min(sure[0])
    sure[0].remove(moved)
    wrong = ((moved[0] + 1) % len(model.pairs("test")[0][0]), moved[1])
    one = [[f"{i + 1}-{j + 1}" for i, j in own] for own in sure]
    one[0].append(f"{wrong[0] + 1}p{wrong[1] + 1}")
    (tmp_path / "gold.txt").write_text("".join(" ".join(line) + "\n" for line in one))
    (tmp_path / "gold.naacl").write_text(
        "".join(f"{n} {i + 1} {j + 1} S\n" for n, own in enumerate(sure, 1) for i, j in own)
        + f"1 {wrong[0] + 1} {wrong[1] + 1} P\n"
    )
    capsys.readouterr()
    options = ["evaluate", str(run), "--alignments"]
    assert main([*options, str(tmp_path / "gold.txt"), "--one-based", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["alignments"]
    kinds = [(row["kind"], row["attention"], row["head"]) for row in rows]
    layer = "decoder.layers.{}.memory_attention"
    assert kinds[:2] == [("average", layer.format(0), None), ("average", layer.format(1), None)]
    assert kinds[3] == ("guided head", layer.format(0), 0)
    assert rows[0]["recall"] == 1.0
    assert rows[0]["precision"] == pytest.approx((count - 1) / count)
    assert rows[0]["aer"] == pytest.approx(1 - 2 * (count - 1) / (count + count - 1))
    assert rows[2]["aer"] <= rows[3]["aer"]
    assert main([*options, str(tmp_path / "gold.naacl")]) == 0
    printed = capsys.readouterr().out
    assert f"5 pairs, {count - 1} sure links of {count} possible ones" in printed
    assert f"{100 * rows[0]['aer']:.1f} %" in printed
    assert main([*options, str(tmp_path / "gold.txt")]) == 1
    assert "is outside of its" in capsys.readouterr().err


@pytest.mark.slow
def test_a_guided_head_learns_the_alignment(tmp_path):
    """Copied words, 150 steps, one seed: guidance lowers the error, with a weight of 1 by half."""
    links = [
        [write_pharaoh({(i, i) for i in range(len(word))}) for word, _ in pairs]
        for pairs in (generate("copy", split, count=2000, seed=1) for split in ("train", "test"))
    ]
    (tmp_path / "train.txt").write_text("\n".join(links[0]) + "\n")
    errors = {}
    for weight in (0.0, 0.05, 1.0):
        file = tmp_path / "train.txt" if weight else ""
        settings = ["data.name=copy", "data.count=2000", "data.test_count=100", "data.sentences=50"]
        settings += ["model.dim=24", "model.hidden=32", "model.norm=pre", "model.dropout=0.0"]
        settings += ["training.steps=150", "training.lr=0.01", f"loss.guided={weight}"]
        settings += [f"data.alignments={file}"]
        model = regard.train(REVERSE, tmp_path / str(weight), settings=settings, progress=Silent())
        found = score_alignments(model, model.pairs("test"), read_pharaoh(links[1][:100]))
        errors[weight] = {each.kind: each.score.error for each in found}
    print(errors)  # the table of docs/training.md
    assert errors[0.05]["guided head"] < 0.9 * errors[0.0]["best head"]
    assert errors[1.0]["guided head"] < 0.5 * errors[0.0]["best head"]
