"""Traces in files: `.attn` is safetensors, with a JSON header that says what the tensors are.

A file from a stranger is safe to open: nothing in it is executed, its header is checked before
anything is read, and each row of a map when it is read. Rows are read when somebody asks for them.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.files import atomic_file
from regard.core.map import AttentionMap
from regard.core.score import SCORES
from regard.trace.call import Call, Inputs
from regard.trace.trace import Trace

FORMAT = "regard.attn/1"
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PARTS = ("query", "key", "value")


def save_trace(trace: Trace, path: str | os.PathLike[str], *, inputs: bool = False) -> None:
    """Write a trace; its maps are computed, and checked against what the model really used.

    Args:
        path: to a file, by custom with the ending .attn
        inputs: also write queries, keys and values, from which each weight can be followed

    Raises:
        ValueError: if a map is not one: NaN, or rows that sum to more than one
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    calls = []
    for number, call in enumerate(trace.calls):
        call.verify()
        weights = call.map.dense().detach().cpu().contiguous()
        own = _is_distribution(call)
        _check_rows(weights, call.name, own)
        tensors[str(number)] = weights
        made_of = call.inputs if inputs else None
        for part in PARTS if made_of is not None else ():
            tensor: Tensor = getattr(made_of, part)
            tensors[f"{number}.{part}"] = tensor.detach().cpu().contiguous().clone()
        about = {"name": call.name, "queries": call.queries, "keys": call.keys}
        calls.append({**about, "distribution": own, "provenance": _plain(call.provenance)})
    header = {"calls": calls, "tokens": trace.tokens, "about": trace.about}
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, default=str)
    with atomic_file(path) as unfinished:
        save_file(tensors, unfinished, metadata={"format": FORMAT, "trace": text})


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace; rows of its maps are read from the file when somebody asks for them.

    >>> import tempfile
    >>> maps = {"cross": torch.tensor([[0.25, 0.75]])}
    >>> file = Path(tempfile.mkdtemp()) / "a.attn"
    >>> Trace.of_maps(maps, queries=["chat"], keys=["the", "cat"]).save(file)
    >>> trace = load_trace(file)
    >>> trace["cross"].map[0, 0], trace.tokens["target"]
    (tensor([0.2500, 0.7500]), ['chat'])

    Raises:
        FileNotFoundError: if there is no such file
        ValueError: if it is not a trace, is cut short, or says what cannot be
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no trace at {path}")
    try:
        file = safe_open(path, framework="pt")
        metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a trace, or is cut short: {error}") from None
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "nothing")
        raise ValueError(f"{path} is no trace: its header should say {FORMAT!r}, it says {found!r}")
    try:
        header = json.loads(metadata["trace"])
        return _trace(header, file)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no trace: {_sentence(error)}") from None


def _trace(header: Any, file: Any) -> Trace:
    """A trace from a header, which is believed in nothing."""
    _expect(header, dict, "the header")
    tokens = _expect(header["tokens"], dict, "tokens")
    for side, labels in tokens.items():
        _check_labels(side, labels)
    known = set(file.keys())
    calls: list[Call] = []
    for number, entry in enumerate(_expect(header["calls"], list, "calls")):
        _expect(entry, dict, f"call {number}")
        name, queries, keys = (
            _expect(entry[each], str, f"{each} of call {number}")
            for each in ("name", "queries", "keys")
        )
        if str(number) not in known:
            raise ValueError(f"the map of {name!r} is missing")
        own = _expect(entry["distribution"], bool, f"distribution of {name!r}")
        provenance = _expect(entry["provenance"], dict, f"provenance of {name!r}")
        map = _lazy(file, str(number), name, own)
        parts = [f"{number}.{part}" for part in PARTS]
        made_of = _inputs(file, parts, provenance) if known.issuperset(parts) else None
        calls.append(Call(name, map, queries, keys, provenance, made_of))
    trace = Trace(calls, tokens, _expect(header["about"], dict, "about"))
    if len(set(trace.names)) != len(calls):
        raise ValueError("two calls have one name")
    for call in calls:
        if call.batch is None and "rows" not in call.provenance:
            trace.check(call)
    return trace


def _lazy(file: Any, key: str, name: str, distribution: bool) -> AttentionMap:
    """A map that reads its rows from a file, and checks what it reads."""
    part = file.get_slice(key)
    shape, dtype = part.get_shape(), part.get_dtype()
    if dtype not in DTYPES:
        raise ValueError(f"the map of {name!r} holds {dtype}, not floating-point numbers")
    if not 3 <= len(shape) <= 4:
        raise ValueError(f"the map of {name!r} has shape {shape}, not (heads, M, N)")

    def rows(some: slice) -> Tensor:
        place = (*[slice(None)] * (len(shape) - 2), some)
        weights = part[place] if some.stop > some.start else torch.zeros(*shape[:-2], 0, shape[-1])
        _check_rows(weights, name, distribution)
        return weights

    return AttentionMap(rows, None, tuple(shape))


def _inputs(file: Any, parts: list[str], provenance: dict) -> Callable[[], Inputs]:
    def read() -> Inputs:
        query, key, value = (file.get_tensor(part) for part in parts)
        score = SCORES.get(str(provenance.get("score")))
        return Inputs(query, key, value, score, None, None, None)

    return read


def _plain(provenance: dict[str, Any]) -> dict[str, Any]:
    """What JSON can hold: it knows no NaN."""
    unknown = {k: str(v) for k, v in provenance.items() if isinstance(v, float) and v - v != 0}
    return {**provenance, **unknown}


def _is_distribution(call: Call) -> bool:
    """Whether the rows should be distributions; those of a normalizer of one's own need not."""
    return call.provenance.get("normalizer") in (None, "softmax", "sparsemax", "entmax15", "hard")


def _check_rows(weights: Tensor, name: str, distribution: bool) -> None:
    """Raise unless rows are finite and, as distributions, sum to one at most."""
    if not bool(torch.isfinite(weights).all()):
        raise ValueError(f"the map of {name!r} has NaN or infinity in it")
    if not distribution or not weights.numel():
        return
    slack = 1e-3 if weights.dtype in (torch.float32, torch.float64) else 5e-2
    low, high = float(weights.min()), float(weights.double().sum(-1).max())
    if low < -slack or high > 1 + slack:
        raise ValueError(
            f"the map of {name!r} is no attention: a row of weights from 0 sums to 1 at most, here "
            f"the smallest weight is {low:.3g} and the largest sum {high:.3g}"
        )


def _check_labels(side: Any, labels: Any) -> None:
    _expect(labels, list, f"{side} tokens")
    lists = labels if labels and isinstance(labels[0], list) else [labels]
    if not all(isinstance(label, str) for each in lists for label in _expect(each, list, "tokens")):
        raise ValueError(f"{side} tokens should be strings")


def _expect(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{what} should be {kind.__name__}, got {type(value).__name__}")
    return value


def _sentence(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
