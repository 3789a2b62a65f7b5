"""Masks for several texts packed into one sequence."""

import torch
from torch import Tensor

from regard.core import key_range as ranges
from regard.core.key_range import KeyRange
from regard.core.mask.algebra import Grid, Mask, align, check_leading
from regard.core.shapes import broadcast


class Segments(Mask):
    """Queries see the keys of their own segment."""

    def __init__(self, query_ids: Tensor, key_ids: Tensor | None) -> None:
        self.self_attention = key_ids is None
        self.query_ids = query_ids
        self.key_ids = query_ids if key_ids is None else key_ids
        self.leading = max(self.query_ids.dim(), self.key_ids.dim()) - 1

    def check(self, grid: Grid) -> None:
        check_leading(self, grid.leading)
        queries, keys = self.query_ids.shape[-1], self.key_ids.shape[-1]
        if (queries, keys) != (grid.queries, grid.keys):
            hint = "; for two sequences give segments(query_ids, key_ids)"
            raise ValueError(
                f"segments() has ids for {queries} queries and {keys} keys, but there are "
                f"{grid.queries} queries and {grid.keys} keys{hint if self.self_attention else ''}"
            )

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        query, key = self._aligned(grid)
        return query[..., rows].unsqueeze(-1) == key[..., keys].unsqueeze(-2)

    def key_range(self, grid: Grid) -> KeyRange:
        query, key = self._aligned(grid)
        wide = broadcast(query.shape[:-1], key.shape[:-1])
        query = query.expand(*wide, grid.queries).contiguous()
        # a stable sort puts the keys of one segment side by side, in their order
        ordered, place = key.expand(*wide, grid.keys).sort(dim=-1, stable=True)
        start = torch.searchsorted(ordered, query)
        count = torch.searchsorted(ordered, query, right=True) - start
        if grid.keys == 0:
            return KeyRange(count, count, True)
        low = place.gather(-1, start.clamp(max=grid.keys - 1))
        high = place.gather(-1, (start + count - 1).clamp(min=0)) + 1
        return ranges.tidy(low, high.masked_fill(count == 0, 0), count == high - low)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.query_ids,) if self.self_attention else (self.query_ids, self.key_ids)

    def _aligned(self, grid: Grid) -> tuple[Tensor, Tensor]:
        query, key = self.query_ids.to(grid.device), self.key_ids.to(grid.device)
        return align(query, grid.leading, 1), align(key, grid.leading, 1)

    def __repr__(self) -> str:
        return f"segments{tuple(self.query_ids.shape)}"


def segments(query_ids: Tensor, key_ids: Tensor | None = None) -> Mask:
    """Queries see keys with the same id: several texts packed into one sequence.

    >>> segments(torch.tensor([0, 0, 1])).dense(3, 3).int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)

    Args:
        query_ids: integers (M,), or (B, M) lined up with the first leading dimension; given
            alone they are for self-attention
        key_ids: integers (N,) or (B, N)
    """
    for ids in (query_ids, key_ids):
        whole = isinstance(ids, Tensor) and not ids.is_floating_point() and ids.dtype != torch.bool
        if ids is not None and not whole:
            kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"segments() takes a tensor of whole numbers, got {kind}")
        if ids is not None and ids.dim() == 0:
            raise ValueError("segments() takes ids of shape (length,) or (batch, length)")
    # copies: the user may change the ids before backward
    return Segments(query_ids.clone(), None if key_ids is None else key_ids.clone())
