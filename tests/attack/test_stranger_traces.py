"""Corrupted and hostile `.attn` files are a clear ValueError or a right trace, never a crash.

Each file is loaded, read, shown and drawn as `regard see` would; memory and time are limited.
"""

import copy
import json
import os
import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.trace import Trace, file
from regard.trace.call import LARGEST_READ
from regard.trace.missed import Missed
from regard.visual.views import show

ESCAPES = ["\x1b]52;c;cm0gLXJmIH4=\x07", "\x1b[2J", "\x9b31m", "a\rb", "\x00", "\u202eabc", "\x7f"]


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).softmax(-1)


def sound(path: Path, batch: bool = False) -> bytes:
    """A trace as this library writes it."""
    if batch:
        layer = regard.layers.MultiHeadAttention(6, heads=2).eval()
        with regard.capture(layer) as trace, torch.no_grad():
            layer(torch.randn(3, 5, 6))
        trace.label(source=[list("abcde"), list("fgh"), ["i"]]).save(path, inputs=True)
    else:
        maps = {"encoder.0": weights(2, 3, 5), "encoder.1": weights(2, 3, 5)}
        trace = Trace.of_maps(maps, queries=list("abc"), keys=list("vwxyz"), title="미안")
        trace.missed = [Missed("encoder.2", "LinearAttention", "has no map")]
        trace.save(path)
    return path.read_bytes()


def split(whole: bytes) -> tuple[dict, bytes]:
    size = int.from_bytes(whole[:8], "little")
    return json.loads(whole[8 : 8 + size]), whole[8 + size :]


def joined(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def use(path: Path) -> None:
    """Do with a file what commands do with it; raise ValueError where it is not a right trace."""
    trace = regard.load_trace(path)
    repr(trace)
    for call in trace:
        repr(call)
        trace.labels(call)
        call.map[..., :1, :]
        call.map.topk(1)
        inputs = call.inputs
        assert inputs is None or inputs.query.dim() >= 2
    one = trace.of(0)
    text = show(one, width=60)
    assert not any(escape in text for escape in ESCAPES)
    assert all(char.isprintable() or char == "\n" for char in text if char not in "\u2068\u2069")


def survives(path: Path) -> bool:
    """Whether a file is a right trace; else it must be a ValueError in one printable line."""
    message = None
    tracemalloc.start()
    try:
        use(path)
    except (ValueError, FileNotFoundError) as error:
        message = str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500e6
    assert message is None or (message and "\x1b" not in message and "\x9b" not in message)
    return message is None


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


STRANGE = [
    None, True, -1, 0, 2**70, 1.5, float("nan"), "", "x" * 1000, [], {}, [[]], [None], {"a": None},
    nested(50), *ESCAPES, ["a", ["b"]], [["a"], ["b"]], [0, 1], ["0"], {"0": [1]},
]  # fmt: skip


TASKS = ["translate", "classify", "pair", "recommend", "graph", "memory", "image", "language"]


def changed(value: Any, rng: random.Random) -> Any:
    """The value with one part of it replaced, removed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        value = dict(value)
        if rng.random() < 0.15:
            del value[key]
        elif rng.random() < 0.1:
            value[rng.choice(ESCAPES)] = value.pop(key)
        else:
            value[key] = changed(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:place] + value[place + 1 :] * rng.choice([1, 2])
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    return copy.deepcopy(rng.choice(STRANGE))


@pytest.mark.parametrize("batch", [False, True])
def test_bit_flips_and_truncation(attempts, tmp_path, batch):
    whole, path = sound(tmp_path / "a.attn", batch), tmp_path / "b.attn"
    for rng in attempts(60):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 8, 64])):
            # most of them in the header, where they do more than change a weight
            place = rng.randrange(len(data) if rng.random() < 0.3 else min(900, len(data)))
            data[place] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        if rng.random() < 0.1:
            data += bytes(rng.randrange(1, 100))
        path.write_bytes(data)
        survives(path)


@pytest.mark.parametrize("batch", [False, True])
def test_headers_that_lie(attempts, tmp_path, batch):
    whole, path = sound(tmp_path / "a.attn", batch), tmp_path / "b.attn"
    header, data = split(whole)
    for rng in attempts(120):
        inner = json.loads(header["__metadata__"]["trace"])
        for _ in range(rng.choice([1, 1, 2, 4])):
            inner = changed(inner, rng)
        if rng.random() < 0.3 and isinstance(inner, dict):
            inner["about"] = {"task": rng.choice(TASKS), "prediction": rng.choice(STRANGE)}
        metadata = {**header["__metadata__"], "trace": json.dumps(inner)}
        path.write_bytes(joined({**header, "__metadata__": metadata}, data))
        survives(path)


def test_shapes_that_lie(attempts, tmp_path):
    whole, path = sound(tmp_path / "a.attn", batch=True), tmp_path / "b.attn"
    header, data = split(whole)
    names = [name for name in header if name != "__metadata__"]
    for rng in attempts(60):
        new = json.loads(json.dumps(header))
        entry = new[rng.choice(names)]
        part = rng.choice(["shape", "data_offsets", "dtype"])
        if part == "dtype":
            entry[part] = rng.choice(["F64", "F16", "BF16", "I8", "BOOL", "F8_E4M3", "X", 3])
        else:
            values = [rng.choice([0, 1, 2, 3, 5, 6, 30, 2**31, 2**62, -1]) for _ in range(4)]
            entry[part] = rng.choice([values, values[:3], values[:2], entry[part][::-1], [], "x"])
        path.write_bytes(joined(new, data))
        survives(path)


def bomb(path: Path, shape: tuple[int, ...]) -> Path:
    """A file with holes: a few kilobytes on disk, half a gigabyte and more when it is read."""
    size = 4 * torch.Size(shape).numel()
    entry = {"name": "a", "queries": "q", "keys": "k", "distribution": True, "provenance": {}}
    inner = {"calls": [entry], "tokens": {}, "about": {}, "missed": []}
    metadata = {"format": file.FORMAT, "trace": json.dumps(inner)}
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}
    path.write_bytes(joined({"__metadata__": metadata, "0": tensor}, b""))
    os.truncate(path, path.stat().st_size + size)
    return path


@pytest.mark.parametrize("shape", [(1, 2**24, 8), (1, 8, 2**24), (2**26, 1, 1)])
def test_a_sparse_bomb_is_refused_at_once(tmp_path, shape):
    with pytest.raises(ValueError, match="more than"):
        regard.load_trace(bomb(tmp_path / "a.attn", shape))


def test_a_large_map_is_read_in_parts_only(tmp_path):
    trace = regard.load_trace(bomb(tmp_path / "a.attn", (4, 6000, 6000)))
    for map in (trace["a"].map, trace.select(rows=slice(None)).calls[0].map):
        assert map[..., 17, :].shape == (4, 6000)
        with pytest.raises(ValueError, match=f"more than {LARGEST_READ}"):
            map.dense()
    with pytest.raises(ValueError, match=f"more than {LARGEST_READ}"):
        show(trace)


@pytest.mark.slow
def test_a_large_map_is_drawn_from_its_tiles(tmp_path):
    trace = regard.load_trace(bomb(tmp_path / "a.attn", (4, 6000, 6000)))
    trace.figure(tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_a_file_or_header_beyond_the_limit_is_refused_unread(tmp_path):
    path = tmp_path / "a.attn"
    whole = sound(path)
    os.truncate(path, file.LARGEST_FILE + 1)
    with pytest.raises(ValueError, match="its file has"):
        regard.load_trace(path)
    header, data = split(whole)
    header["__metadata__"]["more"] = "x" * file.LARGEST_HEADER
    path.write_bytes(joined(header, data))
    with pytest.raises(ValueError, match="its header has"):
        regard.load_trace(path)
    for text in ("[" * 10**6, "{}," * 10**6, f"[{'0,' * 10**6}0]", "9" * 10**6):
        header["__metadata__"] = {"format": file.FORMAT, "trace": text}
        path.write_bytes(joined(header, data))
        assert not survives(path)


def test_escapes_in_names_are_refused_and_in_tokens_and_titles_made_visible(tmp_path):
    path = tmp_path / "a.attn"
    for escape in ESCAPES:
        Trace.of_maps({f"a{escape}": weights(3, 3)}, queries=list("abc")).save(path)
        with pytest.raises(ValueError, match="cannot be printed"):
            regard.load_trace(path)
        named = Trace.of_maps({f"a{escape}": weights(3, 3)}, queries=list("abc"))
        assert escape not in repr(named)
        tokens = [f"a{escape}", escape, "c"]
        Trace.of_maps({"a": weights(3, 3)}, queries=tokens, title=escape, text=escape).save(path)
        assert survives(path)
