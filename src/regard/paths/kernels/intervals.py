"""Intervals of visible keys: query i sees keys low_i … high_i − 1, or all if none is given."""

import numpy as np
import torch
from torch import Tensor


def interval_arrays(
    low: Tensor | None, high: Tensor | None, queries: int, keys: int
) -> tuple[np.ndarray, np.ndarray]:
    """Both ends as int64 arrays of shape (B or 1, M)."""
    start = np.zeros((1, queries), np.int64) if low is None else low.contiguous().numpy()
    stop = np.full((1, queries), keys, np.int64) if high is None else high.contiguous().numpy()
    return start, stop


def visible_cells(low: Tensor | None, high: Tensor | None, keys: int) -> Tensor | None:
    """The cells that queries see, (B or 1, M, N), or None where that is all of them.

    >>> visible_cells(None, torch.tensor([[1, 3]]), 3)
    tensor([[[ True, False, False],
             [ True,  True,  True]]])
    """
    cells = None
    if low is not None:
        cells = torch.arange(keys, device=low.device) >= low[..., None]
    if high is not None:
        before = torch.arange(keys, device=high.device) < high[..., None]
        cells = before if cells is None else cells & before
    return cells


def rows_of(end: Tensor | None, rows: slice) -> Tensor | None:
    return None if end is None else end[:, rows]


def hide(sequence: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """Keys or values (B, N, D) with zeros for those outside of every interval, NaN among them.

    >>> hide(torch.full((1, 3, 1), torch.nan), None, torch.tensor([[1, 2]])).flatten()
    tensor([nan, nan, 0.])
    """
    keys = sequence.shape[1]
    if (low is None and high is None) or keys == 0:
        return sequence
    end = low if high is None else high
    assert end is not None
    start = torch.zeros_like(end) if low is None else low.clamp(min=0)
    stop = torch.full_like(end, keys) if high is None else high.clamp(max=keys)
    start, stop = torch.broadcast_tensors(start, stop)
    # +1 where an interval starts and −1 where it stops: the running sum counts who sees a key
    steps = torch.zeros(start.shape[0], keys + 1, dtype=torch.int64, device=sequence.device)
    some = (start < stop).long()
    steps.scatter_add_(1, start.clamp(max=keys), some)
    steps.scatter_add_(1, stop.clamp(min=0), -some)
    return torch.where(steps.cumsum(1)[:, :keys, None] > 0, sequence, 0)
