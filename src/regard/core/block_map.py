"""Which blocks of a mask are hidden as a whole, and which are visible as a whole.

Masks that are no interval of keys (global tokens, block-sparse patterns, unions) know these two
tables without building the M × N tensor, so that a fast path skips the blocks that are hidden.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.core.key_range import KeyRange


class BlockMap(NamedTuple):
    """Two bool tables (..., blocks of queries, blocks of keys), 1 where nothing depends on it.

    A block outside of `some` is hidden. In a block of `every` each query sees each key. Both may
    err on the safe side: `some` may be True, and `every` False, where it is not known.
    """

    some: Tensor
    every: Tensor


def of_dense(visible: Tensor, size: int) -> BlockMap:
    """The map of a bool tensor (..., M or 1, N or 1) in blocks of `size` queries and keys."""
    bits = visible.view(torch.uint8)
    some, every = (
        reduced(reduced(bits, name, -2, size), name, -1, size) for name in ("amax", "amin")
    )
    return BlockMap(some.bool(), every.bool())


def of_range(keys: KeyRange, length: int, size: int) -> BlockMap:
    """The map of an interval for each query, out of `length` keys."""
    low, high = torch.broadcast_tensors(keys.low, keys.high)
    full = torch.as_tensor(keys.full, device=low.device).expand(low.shape)
    first = low.masked_fill(low >= high, length)  # a query that sees nothing begins nowhere
    edges = torch.arange(0, length + size, size, device=low.device).clamp(max=length)
    start, stop = edges[:-1], edges[1:]

    def of_rows(tensor: Tensor, name: str) -> Tensor:
        return reduced(tensor, name, -1, size).unsqueeze(-1)

    some = (of_rows(first, "amin") < stop) & (of_rows(high, "amax") > start)
    whole = (of_rows(low, "amax") <= start) & (of_rows(high, "amin") >= stop)
    return BlockMap(some, whole & of_rows(full.to(torch.uint8), "amin").bool())


def reduced(tensor: Tensor, name: str, dim: int, size: int) -> Tensor:
    """The largest or smallest entry ("amax", "amin") of every `size` entries along a dimension."""
    length = tensor.shape[dim]
    rest = length % size
    parts = []
    if length > rest:
        body = tensor.narrow(dim, 0, length - rest).unflatten(dim, (-1, size))
        parts.append(getattr(body, name)(dim))
    if rest:
        parts.append(getattr(tensor.narrow(dim, length - rest, rest), name)(dim, keepdim=True))
    return torch.cat(parts, dim) if parts else tensor
