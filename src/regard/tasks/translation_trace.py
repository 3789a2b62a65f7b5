"""A translation seen from inside: what was written, taught again with every attention recorded."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.data import collate
from regard.decoding import Hypothesis, batched, greedy
from regard.decoding import beam as beam_search
from regard.trace import Call, Trace, capture
from regard.training.weights import put_weights, read_tensors

if TYPE_CHECKING:
    from regard.tasks.translator import Translator

LIKELIEST = 5  # next tokens that are kept for each position


@torch.no_grad()
def trace_translation(
    translator: "Translator", text: Any, *, beam: int = 1, written: Hypothesis | None = None
) -> Trace:
    """Translate one text, then teach the model its own translation and record all it attends to.

    Rows of the maps are the tokens that were written, each at the moment before it was: so row t of
    a decoder shows what led to token t. What the decoder has written before then is the side
    "prefix". `about["outputs"]["target"]` holds the likeliest next tokens of each row.

    Args:
        translator: what `regard.load` gives
        text: to translate, or float frames (length, width)
        beam: how many continuations are followed at once
        written: what to teach the model instead of its own translation

    Returns: a trace of one example

    Raises:
        ValueError: a text without any token
    """
    source = translator._encode(text)
    if len(source) == 0:
        raise ValueError(f"there is nothing to see in an empty text, got {text!r}")
    best = _best(translator, source, beam) if written is None else written
    if not best.tokens:
        raise ValueError(f"the model wrote nothing for {text!r}, so there is nothing to see")
    found = translator._translation(text, source, best, False, False)
    batch = collate([(source, ())])
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


def _best(translator: "Translator", source: Any, beam: int) -> Hypothesis:
    if beam == 1:
        return batched(greedy, translator.model, [source])[0]
    search = partial(beam_search, size=beam, n_best=1)
    return batched(search, translator.model, [source])[0][0]


def _looking_back(call: Call) -> Call:
    return replace(call, keys="prefix") if call.keys == "target" else call


def _likeliest(shares: Tensor, tokenizer: Any) -> list[list[list[Any]]]:
    values, indices = shares.topk(min(LIKELIEST, shares.shape[-1]))
    rows = zip(indices.tolist(), values.tolist(), strict=True)
    return [
        [[token, round(share, 5)] for token, share in zip(tokenizer.tokens(ids), row, strict=True)]
        for ids, row in rows
    ]


def trace_checkpoints(
    translator: "Translator", run: str | Path, text: Any, *, beam: int = 1
) -> dict[str, Trace]:
    """How an alignment was learned: the final translation, seen by the model at each checkpoint.

    Args:
        translator: what `regard.load` gives for the run; its weights are put back afterwards
        run: the run directory
        text: to translate
        beam: as for `trace_translation`

    Returns: a trace for each checkpoint by its step, in order, and last the run's own

    Raises:
        FileNotFoundError: a run without checkpoints
    """
    folder = Path(run) / "checkpoints"
    found = sorted(folder.glob("step-*/model.safetensors"), key=_step)
    if not found:
        raise FileNotFoundError(f"there are no checkpoints in {folder}")
    own = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    best = _best(translator, translator._encode(text), beam)
    traces = {}
    try:
        for file in found:
            put_weights(translator.model, read_tensors(file), source=str(file))
            traces[f"step {_step(file)}"] = trace_translation(translator, text, written=best)
    finally:
        translator.model.load_state_dict(own)
    return {**traces, "final": trace_translation(translator, text, written=best)}


def _step(file: Path) -> int:
    return int(file.parent.name.removeprefix("step-"))
