"""One pass over the rows of a lazy map: everything that a page keeps of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.analysis import HeadSums
from regard.core.map import AttentionMap
from regard.trace import Call

BLOCK = 4_000_000  # weights at a time
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 5e-2}  # of a row's sum; else 1e-3


@dataclass
class Scan:
    """What is kept of a map (heads, M, N)."""

    dense: list[np.ndarray]  # blocks (heads, rows, N) of weights; empty for a long map
    keys: np.ndarray  # (heads, M, k) of the largest weights, these first
    weights: np.ndarray  # (heads, M, k)
    pooled: np.ndarray  # (heads, height, width), the largest weight of each tile
    thumbs: np.ndarray  # (heads, height, width), the same, smaller
    entropy: np.ndarray  # (heads,) in nats, mean over the rows
    sink: np.ndarray  # (heads,) weight on the first key
    diagonal: np.ndarray  # (heads,) 1 on the diagonal, 0 as far from it as uniform attention
    previous: np.ndarray  # (heads,) weight on the key before the query's own place
    next: np.ndarray  # (heads,) weight on the key after it


def scan(call: Call, *, top: int, pool: int, thumb: int) -> Scan:
    """Read a map once, a block of rows at a time.

    Args:
        call: one example's map, (heads, M, N)
        top: how many of the largest weights of each row to keep; 0 keeps every weight instead
        pool: most rows and columns of the pooled map
        thumb: most rows and columns of the thumbnail

    Raises:
        ValueError: weights that are negative, above 1 or not finite, or rows of a distribution
            that do not sum to 1 (or 0)
    """
    heads, length, width = call.shape
    height, across = min(pool, length), min(pool, width)
    pooled = np.zeros((heads, height, across), np.float32)
    k = min(top, width)
    keys = np.zeros((heads, length, k), np.uint32)
    largest = np.zeros((heads, length, k), np.float32)
    sums = HeadSums(call.shape)
    dense = []
    for start, block in _blocks(call.map):
        _check(call, block, start)
        weights = block.numpy()  # (heads, rows, N)
        rows = np.arange(start, start + weights.shape[1])
        if top:
            values, indices = block.topk(k)
            keys[:, rows], largest[:, rows] = indices.numpy(), values.numpy()
        else:
            dense.append(weights)
        tiles = np.maximum.reduceat(weights, _starts(width, across), axis=-1)
        for band in np.unique(rows * height // length):
            inside = tiles[:, rows * height // length == band].max(1)
            pooled[:, band] = np.maximum(pooled[:, band], inside)
        sums.add(block)
    means = (sums.entropy, sums.sink, sums.diagonality, sums.share(-1), sums.share(1))
    thumbs = _smaller(pooled, thumb)
    return Scan(dense, keys, largest, pooled, thumbs, *(mean.numpy() for mean in means))


def _blocks(map: AttentionMap) -> Iterator[tuple[int, Tensor]]:
    heads, length, width = map.shape
    size = max(1, BLOCK // max(heads * width, 1))
    for start in range(0, length, size):
        block = map[:, start : start + size, :]
        yield start, block.detach().to("cpu", torch.float32)


def _check(call: Call, block: Tensor, start: int) -> None:
    def place(wrong: Tensor) -> str:
        head, row = wrong.nonzero()[0].tolist()
        return f"query {start + row} of head {head} of {call.name!r}"

    sums = block.sum(-1)  # (heads, rows); one NaN or infinity makes the sum one too
    unknown = ~sums.isfinite()
    if unknown.any():
        raise ValueError(f"{place(unknown)} has a weight that is NaN or infinite")
    negative = block.amin(-1) < -1e-6
    if negative.any():
        raise ValueError(f"{place(negative)} has a negative weight; give weights, not scores")
    tolerance = _tolerance(call)
    if not call.is_distribution:  # each weight by itself, as of sigmoid
        large = block.amax(-1) > 1 + tolerance
        if large.any():
            raise ValueError(f"{place(large)} has a weight above 1; give weights, not scores")
        return
    wrong = sums > 1 + tolerance
    if "path" not in call.provenance:  # of a recorded map, less than 1 is what really happened
        wrong |= (sums < 1 - tolerance) & (sums > tolerance)
    if wrong.any():
        head, row = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{place(wrong)} sums to {sums[head, row].item():.4g}, not to 1; give the weights after"
            " normalizing, with every key of the row"
        )


def _tolerance(call: Call) -> float:
    name = str(call.provenance.get("dtype", "")).removeprefix("torch.")
    return TOLERANCE.get(getattr(torch, name, torch.float32) if name else torch.float32, 1e-3)


def _starts(size: int, tiles: int) -> np.ndarray:
    """Where each tile begins: key j belongs to tile j · tiles // size."""
    return -(-np.arange(tiles) * size // tiles)


def _smaller(pooled: np.ndarray, size: int) -> np.ndarray:
    height, width = min(size, pooled.shape[1]), min(size, pooled.shape[2])
    rows = np.maximum.reduceat(pooled, _starts(pooled.shape[1], height), axis=1)
    return np.maximum.reduceat(rows, _starts(pooled.shape[2], width), axis=2)
