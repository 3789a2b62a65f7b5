"""Traces in files: `.attn` is safetensors with a JSON header that describes the tensors.

An untrusted file is safe to open: nothing in it is executed, sizes are compared with the limits
below before anything is allocated, every field of the header is validated, and rows of a map are
checked when they are read, which is when they are used.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.map import AttentionMap
from regard.core.score import SCORES
from regard.system.files import atomic_file
from regard.trace.call import Call, Inputs, LimitedMap, check_count
from regard.trace.missed import Missed
from regard.trace.trace import Trace

FORMAT = "regard.attn/1"
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PARTS = ("query", "key", "value")
LARGEST_FILE = 2**31
"""Most bytes of a file."""

LARGEST_SIDE = 2**17
"""Most rows or columns of a map."""

LARGEST_HEADER = 2**23
"""Most bytes of the header: parsed JSON is many times as large."""


def save_trace(trace: Trace, path: str | os.PathLike[str], *, inputs: bool = False) -> None:
    """Compute the maps of a trace, verify them against the outputs of the model, and write them.

    Args:
        path: a file, usually named .attn
        inputs: also write queries, keys and values, from which each weight can be recomputed

    Raises:
        ValueError: if a map has NaN, or rows that sum to more than one
    """
    from safetensors.torch import save as serialize

    tensors: dict[str, Tensor] = {}
    calls = []
    for number, call in enumerate(trace.calls):
        call.verify()
        weights = call.map.dense().detach().cpu().contiguous()
        own = call.is_distribution
        _check_rows(weights, call.name, own)
        tensors[str(number)] = weights
        made_of = call.inputs if inputs else None
        for part in PARTS if made_of is not None else ():
            tensor: Tensor = getattr(made_of, part)
            tensors[f"{number}.{part}"] = tensor.detach().cpu().contiguous().clone()
        about = {"name": call.name, "queries": call.queries, "keys": call.keys}
        calls.append({**about, "distribution": own, "provenance": _plain(call.provenance)})
    missed = [each._asdict() for each in trace.missed]
    header = {"calls": calls, "tokens": trace.tokens, "about": trace.about, "missed": missed}
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, default=str)
    with atomic_file(path) as unfinished:
        # not save_file: killed, it would leave a temporary file of its own beside this one
        unfinished.write_bytes(serialize(tensors, {"format": FORMAT, "trace": text}))


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace; rows of its maps are read from the file when they are used.

    >>> import tempfile
    >>> maps = {"cross": torch.tensor([[0.25, 0.75]])}
    >>> file = Path(tempfile.mkdtemp()) / "a.attn"
    >>> Trace.of_maps(maps, queries=["chat"], keys=["the", "cat"]).save(file)
    >>> trace = load_trace(file)
    >>> trace["cross"].map[0, 0], trace.tokens["target"]
    (tensor([0.2500, 0.7500]), ['chat'])

    Raises:
        FileNotFoundError: if the file does not exist
        ValueError: if it is not a trace, is truncated, contradicts itself, or is too large
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"trace file {path} does not exist")
    try:
        _check_size(path)
        file = safe_open(path, framework="pt")
        metadata = file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a trace, or is truncated: {error}") from None
    if metadata.get("format") != FORMAT:
        found = str(metadata.get("format", "nothing"))[:40]
        raise ValueError(
            f"{path} is not a trace: expected format {FORMAT!r} in its header, got {found!r}"
        )
    try:
        header = json.loads(metadata["trace"])
        return _trace(header, file)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a valid trace: {_sentence(error)}") from None


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    for what, bytes, most in (("file", size, LARGEST_FILE), ("header", header, LARGEST_HEADER)):
        if bytes > most:
            raise ValueError(f"its {what} has {bytes} bytes, more than {most}")


def _trace(header: Any, file: Any) -> Trace:
    """A trace from an untrusted header: every field is validated."""
    _expect(header, dict, "the header")
    tokens = _expect(header["tokens"], dict, "tokens")
    for side, labels in tokens.items():
        _check_labels(_printable(side, "the name of tokens"), labels)
    known = set(file.keys())
    calls: list[Call] = []
    for number, entry in enumerate(_expect(header["calls"], list, "calls")):
        _expect(entry, dict, f"call {number}")
        name, queries, keys = (
            _printable(_expect(entry[each], str, f"{each} of call {number}"), f"{each} of a call")
            for each in ("name", "queries", "keys")
        )
        if str(number) not in known:
            raise ValueError(f"the map of {name!r} is missing")
        own = _expect(entry["distribution"], bool, f"distribution of {name!r}")
        provenance = _expect(entry["provenance"], dict, f"provenance of {name!r}")
        map = _lazy(file, str(number), name, own)
        _check_selection(provenance, name, map)
        parts = [f"{number}.{part}" for part in PARTS]
        made_of = _inputs(file, parts, name, provenance) if known.issuperset(parts) else None
        calls.append(Call(name, map, queries, keys, provenance, made_of))
    missed = [_missed(entry) for entry in _expect(header["missed"], list, "missed")]
    trace = Trace(calls, tokens, _expect(header["about"], dict, "about"), missed)
    if len(set(trace.names)) != len(calls):
        raise ValueError("two calls have one name")
    for call in calls:
        if call.batch is None and "rows" not in call.provenance:
            trace.check(call)
        for side in (call.queries, call.keys):
            lists = tokens.get(side) or [""]
            if call.batch is not None and isinstance(lists[0], list) and len(lists) != call.batch:
                raise ValueError(
                    f"{call.name!r} has {call.batch} examples, but {side} tokens of {len(lists)}"
                )
    return trace


def _missed(entry: Any) -> Missed:
    _expect(entry, dict, "an entry of missed")
    texts = [_expect(entry[name], str, f"{name} of missed") for name in Missed._fields]
    return Missed(*(_printable(text, "an entry of missed") for text in texts))


def _lazy(file: Any, key: str, name: str, distribution: bool) -> AttentionMap:
    """A map that reads its rows from a file, and checks them."""
    part = file.get_slice(key)
    shape, dtype = part.get_shape(), part.get_dtype()
    if dtype not in DTYPES:
        raise ValueError(f"the map of {name!r} holds {dtype}, not floating-point numbers")
    if not 3 <= len(shape) <= 4:
        raise ValueError(f"the map of {name!r} has shape {shape}, not (heads, M, N)")
    if max(shape[-2:]) > LARGEST_SIDE:
        raise ValueError(
            f"the map of {name!r} is {shape}: more than {LARGEST_SIDE} rows or columns"
        )
    check_count((*shape[:-2], 1, shape[-1]))  # a row of all heads

    def rows(some: slice) -> Tensor:
        place = (*[slice(None)] * (len(shape) - 2), some)
        weights = part[place] if some.stop > some.start else torch.zeros(*shape[:-2], 0, shape[-1])
        _check_rows(weights, name, distribution)
        return weights

    return LimitedMap(rows, None, tuple(shape))


def _inputs(file: Any, parts: list[str], name: str, provenance: dict) -> Callable[[], Inputs]:
    for part in parts:
        found = file.get_slice(part)
        shape = found.get_shape()
        if found.get_dtype() not in DTYPES or len(shape) < 2:
            raise ValueError(
                f"{part!r} of {name!r} should be floating-point (..., length, dim), got "
                f"{found.get_dtype()} {shape}"
            )

    def read() -> Inputs:
        for part in parts:
            check_count(file.get_slice(part).get_shape())
        query, key, value = (file.get_tensor(part) for part in parts)
        score = SCORES.get(str(provenance.get("score")))
        return Inputs(query, key, value, score, None, None, None)

    return read


def _plain(provenance: dict[str, Any]) -> dict[str, Any]:
    """The provenance with NaN and infinity as text, since JSON has neither."""
    unknown = {k: str(v) for k, v in provenance.items() if isinstance(v, float) and v - v != 0}
    return {**provenance, **unknown}


def _check_rows(weights: Tensor, name: str, distribution: bool) -> None:
    """Raise unless rows are finite and, as distributions, sum to one at most."""
    if not bool(torch.isfinite(weights).all()):
        raise ValueError(f"the map of {name!r} contains NaN or infinity")
    if not distribution or not weights.numel():
        return
    slack = 1e-3 if weights.dtype in (torch.float32, torch.float64) else 5e-2
    low, high = float(weights.min()), float(weights.sum(-1, dtype=torch.float64).max())
    if low < -slack or high > 1 + slack:
        raise ValueError(
            f"the map of {name!r} is not attention: weights should be 0 or more and rows sum to 1 "
            f"at most, but the smallest weight is {low:.3g} and the largest sum {high:.3g}"
        )


def _check_selection(provenance: dict, name: str, map: AttentionMap) -> None:
    """Raise unless "heads" and "rows", where a part was selected, number what is there."""
    for what, size in (("heads", map.shape[-3]), ("rows", map.shape[-2])):
        if what not in provenance:
            continue
        numbers = provenance[what]
        whole = isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
        if not whole or len(numbers) != size:
            raise ValueError(f"{what} of {name!r} should be a list of {size} whole numbers")


def _check_labels(side: Any, labels: Any) -> None:
    _expect(labels, list, f"{side} tokens")
    lists = labels if labels and isinstance(labels[0], list) else [labels]
    if not all(isinstance(label, str) for each in lists for label in _expect(each, list, "tokens")):
        raise ValueError(f"{side} tokens should be strings")


def _printable(text: str, what: str) -> str:
    """The text; raise if it has control characters, which a terminal would interpret."""
    if not text.isprintable():
        raise ValueError(f"{what} has characters that cannot be printed: {text[:80]!r}")
    return text


def _expect(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{what} should be {kind.__name__}, got {type(value).__name__}")
    return value


def _sentence(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
