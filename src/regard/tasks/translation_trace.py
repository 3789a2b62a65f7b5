"""A translation seen from inside: what was written, taught again with every attention recorded."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.data import collate
from regard.decoding import beam as search
from regard.trace import Call, Trace, capture

if TYPE_CHECKING:
    from regard.tasks.translator import Translator

LIKELIEST = 5  # next tokens that are kept for each position


@torch.no_grad()
def trace_translation(translator: "Translator", text: Any, *, beam: int = 1) -> Trace:
    """Translate one text, then teach the model its own translation and record all it attends to.

    Rows of the maps are the tokens that were written, each at the moment before it was: so row t of
    a decoder shows what led to token t. What the decoder has written before then is the side
    "prefix". `about["outputs"]["target"]` holds the likeliest next tokens of each row.

    Args:
        translator: what `regard.load` gives
        text: to translate, or float frames (length, width)
        beam: how many continuations are followed at once

    Returns: a trace of one example

    Raises:
        ValueError: a text without any token
    """
    source = translator._encode(text)
    if len(source) == 0:
        raise ValueError(f"there is nothing to see in an empty text, got {text!r}")
    batch = collate([(source, ())])
    ((best,),) = search(translator.model, batch.source, batch.source_lengths, size=beam)
    found = translator._translation(text, source, best, False, False)
    tokenizer, model = translator.target, translator.model
    before = torch.tensor([[tokenizer.bos, *best.tokens[:-1]]])  # (1, T)
    with capture(model) as recorded:
        memory = model.encode(batch.source, batch.source_lengths)
        features = model.decode(memory, before)  # (1, T, D)
    shares = model.output(features)[0].softmax(-1)  # (T, vocabulary)
    tokens = {
        "source": found.source if any(found.source) else [str(i) for i in range(len(source))],
        "target": found.tokens,
        "prefix": tokenizer.tokens(before[0].tolist()),
    }
    trace = recorded.label(**tokens).stitched().of(0)
    about = {
        **recorded.about,
        "text": text if isinstance(text, str) else "",
        "translation": found.text,
        "outputs": {"target": _likeliest(shares, tokenizer)},
    }
    return Trace([_looking_back(call) for call in trace.calls], tokens, about)


def _looking_back(call: Call) -> Call:
    return replace(call, keys="prefix") if call.keys == "target" else call


def _likeliest(shares: Tensor, tokenizer: Any) -> list[list[list[Any]]]:
    values, indices = shares.topk(min(LIKELIEST, shares.shape[-1]))
    rows = zip(indices.tolist(), values.tolist(), strict=True)
    return [
        [[token, round(share, 5)] for token, share in zip(tokenizer.tokens(ids), row, strict=True)]
        for ids, row in rows
    ]
