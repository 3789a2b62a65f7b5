"""Masks by position: causal and window."""

import torch
from torch import Tensor

from regard.core import key_range as ranges
from regard.core.key_range import KeyRange
from regard.core.mask.algebra import Grid, Mask


class Window(Mask):
    """Keys from `left` before to `right` after the query's position; left None has no bound."""

    def __init__(self, left: int | None, right: int, offset: int | None) -> None:
        self.left, self.right, self.offset = left, right, offset

    def spread(self, grid: Grid) -> torch.Size:
        return torch.Size()

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        low, high, _ = self._interval(rows, grid)
        key = torch.arange(keys.start, keys.stop, device=grid.device)
        return (key >= low.unsqueeze(-1)) & (key < high.unsqueeze(-1))

    def key_range(self, grid: Grid) -> KeyRange:
        return self._interval(slice(0, grid.queries), grid)

    def _interval(self, rows: slice, grid: Grid) -> KeyRange:
        position = query_positions(rows, grid, self.offset)
        low = torch.zeros_like(position) if self.left is None else position - _within(self.left)
        return ranges.interval(low, position + _within(self.right) + 1, grid.keys)

    def square_causal(self, queries: int, keys: int) -> bool:
        """Whether this is the plain triangle: every query sees itself and all before it."""
        aligned = self.offset == 0 or (self.offset is None)
        return self.left is None and self.right == 0 and aligned and queries == keys

    def __repr__(self) -> str:
        sizes = [] if self.left is None else [str(self.left), str(self.right)]
        shift = [] if self.offset is None else [f"offset={self.offset}"]
        return f"{'window' if sizes else 'causal'}({', '.join(sizes + shift)})"


def query_positions(rows: slice, grid: Grid, offset: int | None) -> Tensor:
    """The positions of some queries among the keys; the last is at the last key without offset."""
    offset = grid.keys - grid.queries if offset is None else _within(offset)
    return torch.arange(rows.start, rows.stop, device=grid.device) + offset


def causal(*, offset: int | None = None) -> Mask:
    """No query sees a later key: j ≤ i + offset.

    >>> causal().dense(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])

    Args:
        offset: position of the first query among the keys; N − M if not given
    """
    return Window(None, 0, _whole_number(offset))


def window(left: int, right: int, *, offset: int | None = None) -> Mask:
    """Each query sees `left` keys before its own position, itself, and `right` keys after.

    >>> window(1, 0).dense(3, 3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)

    Args:
        offset: position of the first query among the keys; N − M if not given
    """
    for name, size in (("left", left), ("right", right)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"window {name} must be a number of keys, 0 or more, got {size!r}")
    return Window(left, right, _whole_number(offset))


def _within(number: int) -> int:
    """The number, or the largest that can be added to positions in int64 without overflow."""
    return max(-(2**61), min(number, 2**61))


def _whole_number(offset: int | None) -> int | None:
    if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
        raise TypeError(f"offset must be a whole number or None, got {offset!r}")
    return offset
