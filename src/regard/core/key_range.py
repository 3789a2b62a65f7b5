"""The interval of keys that each query may see, and whether it sees all of it.

Every mask knows its key range without building the M × N tensor, so that a fast path skips what is
outside. The algebra below derives the range of composed masks.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class KeyRange(NamedTuple):
    """For every query, the keys [low, high) outside of which it sees nothing.

    Shapes are (*leading, M), or with ones where nothing depends on a dimension. A query that
    sees nothing has low = high = 0. Where `full` is True a query sees every key of its interval;
    where it is False it sees none outside, and some inside.
    """

    low: Tensor
    high: Tensor
    full: Tensor | bool


def interval(low: Tensor, high: Tensor, length: int) -> KeyRange:
    """The range that sees exactly the keys [low, high) out of `length`."""
    low = low.clamp(0, length)
    high = high.clamp(0, length)
    return tidy(low, high, True)


def tidy(low: Tensor, high: Tensor, full: Tensor | bool) -> KeyRange:
    """Empty intervals written as [0, 0), which are full."""
    empty = low >= high
    if isinstance(full, Tensor):
        full = full | empty
    return KeyRange(low.masked_fill(empty, 0), high.masked_fill(empty, 0), full)


def of_rows(visible: Tensor) -> KeyRange:
    """The range of a dense mask, bool (..., M, N)."""
    length = visible.shape[-1]
    count = visible.sum(-1)
    if length == 0:
        return KeyRange(count, count, True)
    bits = visible.to(torch.uint8)
    low = bits.argmax(-1)
    high = length - bits.flip(-1).argmax(-1)
    return tidy(low, high.masked_fill(count == 0, 0), count == high - low)


def both(a: KeyRange, b: KeyRange) -> KeyRange:
    """The range of A & B: where the intervals overlap."""
    return tidy(torch.maximum(a.low, b.low), torch.minimum(a.high, b.high), _and(a.full, b.full))


def either(a: KeyRange, b: KeyRange) -> KeyRange:
    """The range of A | B: the hull of both intervals."""
    a_empty, b_empty = a.low >= a.high, b.low >= b.high
    low = torch.where(a_empty, b.low, torch.where(b_empty, a.low, torch.minimum(a.low, b.low)))
    high = torch.maximum(a.high, b.high)  # an empty one has 0
    touching = (a.low <= b.high) & (b.low <= a.high)
    joined = (touching | a_empty | b_empty) & a.full & b.full
    a_covers = (a.low <= low) & (a.high >= high) & a.full
    b_covers = (b.low <= low) & (b.high >= high) & b.full
    return tidy(low, high, joined | a_covers | b_covers)


def neither(a: KeyRange, length: int) -> KeyRange:
    """The range of ~A, exact where A leaves one piece of the keys."""
    everything = torch.full_like(a.high, length)
    empty = a.low >= a.high
    prefix = (a.low == 0) & ~empty & a.full
    suffix = (a.high == length) & ~prefix & ~empty & a.full
    low = torch.where(prefix, a.high, 0)
    high = torch.where(suffix, a.low, everything)
    return tidy(low, high, prefix | suffix | empty)


def seen_keys(keys: KeyRange, length: int, queries: int) -> Tensor:
    """Which keys some query sees, bool (..., N); right only where every interval is full."""
    low, high = torch.broadcast_tensors(keys.low, keys.high)
    if queries == 0:
        low, high = torch.zeros_like(low), torch.zeros_like(high)
    edges = low.new_zeros(*low.shape[:-1], length + 1)
    edges.scatter_add_(-1, low, torch.ones_like(low))
    edges.scatter_add_(-1, high, -torch.ones_like(high))
    return edges.cumsum(-1)[..., :length] > 0


def _and(a: Tensor | bool, b: Tensor | bool) -> Tensor | bool:
    if a is True:
        return b
    return a if b is True else a & b
