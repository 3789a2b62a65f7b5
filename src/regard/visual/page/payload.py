"""Traces as the data of a page: labels, maps, thumbnails, diagnostics, tensors."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil, log, log10
from typing import Any

import numpy as np
import torch

from regard.analysis.steps import attention_steps
from regard.trace import Call, Trace
from regard.visual.page.encode import Chunks, linear, rooted, signed
from regard.visual.page.scan import Scan, scan
from regard.visual.step_texts import MISSING

EXACT = 2**17  # weights of a page that are stored in 16 bits
CLOSE = 2**25  # weights that are stored in 10 bits; above that in 8
DENSE = 40_000_000  # weights of a page that are stored; above that, the largest of each row
LONGEST_DENSE = 2048  # rows or columns of a map that is stored as a whole
LARGEST_WEIGHTS = 900_000  # stored in a page whose maps are too long
POOLED = 1_000_000  # pooled weights in such a page
NUMBERS = 3_000_000  # elements of the steps of one call; above that a page shows weights only
MATRICES = 2**16  # elements of W_Q, W_K, W_V and W_O; above that a page has their products only
THUMB = 40
MANY_KEYS = 128  # above that, weights are so small that the scale starts as a square root


def payload(traces: Mapping[str, Trace], *, language: str, chunks: Chunks) -> dict[str, Any]:
    """The data of a page, ready for JSON; large arrays go to chunks.

    Args:
        traces: of one example each, by label, such as the checkpoint
        language: of the interface, "en" or "ko"
        chunks: receives the packed arrays

    Raises:
        ValueError: no trace or no call, a batch, labels that do not fit, or invalid weights
    """
    ready = {label: _one_example(trace) for label, trace in traces.items()}
    if not ready:
        raise ValueError("a page needs a trace, got none")
    calls = [call for trace in ready.values() for call in trace.calls]
    if not calls:
        raise ValueError("a page needs a trace with at least one attention call, got none")
    labels = _Labels()
    sizes = [call.shape.numel() for call in calls]
    longest = max(max(call.shape[-2:]) for call in calls)
    is_dense = sum(sizes) <= DENSE and longest <= LONGEST_DENSE
    rows = sum(call.shape[:-1].numel() for call in calls)
    limits = _Limits(
        bits=16 if sum(sizes) <= EXACT else 10 if sum(sizes) <= CLOSE else 8,
        top=0 if is_dense else max(4, LARGEST_WEIGHTS // max(rows, 1)),
        pool=THUMB
        if is_dense
        else int(np.clip((POOLED / sum(call.heads for call in calls)) ** 0.5, 64, 1024)),
    )
    short_names = _short_names([call.name for call in calls])
    shown: list[dict[str, Any]] = [
        {
            "label": label,
            "calls": [
                _call(trace, call, limits, labels, chunks, short_names) for call in trace.calls
            ],
            "outputs": trace.about.get("outputs"),
        }
        for label, trace in ready.items()
    ]
    last = next(reversed(ready.values()))
    about = last.about
    return {
        "language": language,
        "model": str(about.get("model", about.get("task", ""))),
        "input": str(about.get("text", "")),
        "output": str(about.get("translation", about.get("title", ""))),
        "curve": "root" if longest > MANY_KEYS else "linear",
        "labels": labels.lists,
        "special": labels.special,
        "missed": list(dict.fromkeys(str(each) for one in ready.values() for each in one.missed)),
        "traces": shown,
        **_first_view(last, shown[-1]["calls"]),
    }


class _Limits:
    def __init__(self, *, bits: int, top: int, pool: int) -> None:
        self.bits, self.top, self.pool = bits, top, pool


class _Labels:
    """Lists of tokens, without duplicates, and which of them are special."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.special: list[list[int]] = []

    def index(self, tokens: Sequence[str], special: Sequence[bool]) -> int:
        wanted = [str(token) for token in tokens]
        if wanted not in self.lists:
            self.lists.append(wanted)
            places = enumerate(special) if len(special) == len(wanted) else ()
            self.special.append([place for place, is_special in places if is_special])
        return self.lists.index(wanted)


def _special(trace: Trace, side: str) -> list[bool]:
    """Whether each token of a side is special, such as [CLS], where the trace says so."""
    sides = trace.about.get("special")
    marks = sides.get(side) if isinstance(sides, dict) else None
    return marks if isinstance(marks, list) else []


def _one_example(trace: Trace) -> Trace:
    batches = {call.batch for call in trace.calls}
    if batches == {1}:
        trace = trace.of(0)
    elif batches - {None}:
        raise ValueError(
            "a page shows one example, but this trace is of a batch; choose one with trace.of(0)"
        )
    for call in trace.calls:
        if 0 in call.shape:
            raise ValueError(
                f"{call.name!r} has shape {tuple(call.shape)}: there is nothing to show"
            )
        trace.check(call)
    return trace


def _short_names(names: list[str]) -> dict[str, str]:
    """Names without the parts that all of them share.

    >>> _short_names(["encoder.layers.0.attention", "encoder.layers.11.attention"])
    {'encoder.layers.0.attention': '0', 'encoder.layers.11.attention': '11'}
    """
    parts = [name.split(".") for name in dict.fromkeys(names)]
    shared = set.intersection(*map(set, parts)) if len(parts) > 1 else set()
    return {".".join(own): ".".join(p for p in own if p not in shared) or own[-1] for own in parts}


def _call(
    trace: Trace,
    call: Call,
    limits: _Limits,
    labels: _Labels,
    chunks: Chunks,
    short_names: Mapping[str, str],
) -> dict[str, Any]:
    found = scan(call, top=limits.top, pool=limits.pool, thumb=THUMB)
    queries, keys = trace.labels(call)
    about = {
        "name": call.name,
        "role": call.role,
        "shortName": short_names[call.name],
        "queries": call.queries,
        "keys": call.keys,
        "queryLabels": labels.index(queries, _special(trace, call.queries)),
        "keyLabels": labels.index(keys, _special(trace, call.keys)),
        "heads": call.heads,
        "rows": call.shape[-2],
        "columns": call.shape[-1],
        "headNumbers": call.provenance.get("heads"),
        "provenance": {name: _text(value) for name, value in call.provenance.items()},
        "diagnostics": _diagnostics(found),
        "thumbSize": list(found.thumbs.shape[1:]),
        "thumbs": chunks.add(cells=np.rint(255 * np.sqrt(found.thumbs.clip(0, 1))).astype("u1")),
        **(_too_large if limits.top else _numbers(call, chunks)),
    }
    return about | (_long(found, chunks) if limits.top else _whole(found, limits.bits, chunks))


_too_large: dict[str, Any] = {"numbers": None, "noNumbers": "tooLarge"}


def _numbers(call: Call, chunks: Chunks) -> dict[str, Any]:
    """The tensors of the steps of a call, or why there are none."""
    size = call.shape.numel()
    steps = attention_steps(call) if size <= NUMBERS else None
    if steps is None:
        return {"numbers": None, "noNumbers": "noNumbers"} if size <= NUMBERS else _too_large
    tensors = dict(steps.tensors)
    x = tensors.get("input_query")
    for name, other in (("input_key", x), ("input_value", tensors.get("input_key"))):
        if other is not None and torch.equal(tensors[name], other):
            del tensors[name]
    matrices = [name for name in tensors if name.endswith(("_weight", "_bias"))]
    if sum(tensors[name].numel() for name in matrices) > MATRICES:
        tensors = {name: each for name, each in tensors.items() if name not in matrices}
    if size + sum(tensor.numel() for tensor in tensors.values()) > NUMBERS:
        return _too_large
    packed = {}
    for name, tensor in tensors.items():
        scale, cells = signed(tensor.numpy())
        bundle = chunks.add(scale=scale, cells=cells)
        packed[_camel(name)] = {"shape": list(tensor.shape), "bundle": bundle}
    numbers = {
        "score": steps.score,
        "form": steps.form,
        "scale": steps.scale,
        "offset": steps.offset,
        "hasBias": steps.has_bias,
        "hasMask": steps.has_mask,
        "normalizer": steps.normalizer,
        "hasProjections": steps.has_projections,
        "missing": {_camel(name): MISSING[reason] for name, reason in steps.missing.items()},
        "tensors": packed,
    }
    return {"numbers": numbers}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _whole(found: Scan, bits: int, chunks: Chunks) -> dict[str, Any]:
    """Every weight, in a chunk per head, so that a page unpacks only the selected heads."""
    pack = linear if bits == 16 else partial(rooted, bits=bits)
    maps = []
    for head in range(len(found.entropy)):
        scale, cells = pack(np.concatenate([block[head] for block in found.dense]).clip(min=0))
        maps.append(chunks.add(scale=scale, cells=cells))
    return {"kind": "dense", "bits": bits, "maps": maps}


def _long(found: Scan, chunks: Chunks) -> dict[str, Any]:
    """The largest weights of each row, and the largest of each tile."""
    maps = []
    small = found.keys.size == 0 or found.keys.max() < 2**16
    for keys, weights, pooled in zip(found.keys, found.weights, found.pooled, strict=True):
        scale, cells = linear(weights)
        pool_scale, pool_cells = rooted(pooled)
        maps.append(
            chunks.add(
                scale=scale,
                poolScale=pool_scale,
                keys=keys.astype(np.uint16 if small else np.uint32),
                weights=cells,
                pooled=pool_cells,
            )
        )
    k, (height, width) = found.keys.shape[-1], found.pooled.shape[1:]
    return {"kind": "sparse", "k": k, "pool": [height, width], "maps": maps}


def _diagnostics(found: Scan) -> list[dict[str, float]]:
    names = ("entropy", "sink", "diagonal", "previous", "next")
    columns = [[round(float(value), 4) for value in getattr(found, name)] for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _first_view(trace: Trace, shown: list[dict[str, Any]]) -> dict[str, Any]:
    """The call and head to open with: the most informative one, of cross-attention if there is any.

    A head is informative if it is focused, and neither on the first key nor, in self-attention, on
    the diagonal or its neighbours.
    """
    is_cross = [call.queries != call.keys for call in trace.calls]

    def score(index: int, head: int) -> float:
        call, found = shown[index], shown[index]["diagnostics"][head]
        focus = 1 - found["entropy"] / max(log(max(call["columns"], 2)), 1e-9)
        trivial = (
            [0.0] if is_cross[index] else [found["diagonal"], found["previous"], found["next"]]
        )
        return focus * (1 - found["sink"]) * (1 - min(max(*trivial, 0.0), 1.0))

    heads = {index: range(call.heads) for index, call in enumerate(trace.calls)}
    best = {index: max(own, key=partial(score, index)) for index, own in heads.items()}
    for index, call in enumerate(shown):
        call["firstHead"] = best[index]
    candidates = [index for index in best if is_cross[index]] or list(best)
    first = max(candidates, key=lambda index: score(index, best[index]))
    return {"call": first, "heads": [best[first]]}


def _text(value: object) -> str:
    if isinstance(value, float) and value:
        digits = max(0, 3 - ceil(log10(abs(value))))
        return f"{value:.{digits}f}" if digits < 6 else f"{value:.1e}"
    return str(value)
