"""Masks for several texts packed into one sequence."""

from functools import cached_property

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

    @cached_property
    def query_runs(self) -> dict[int, tuple[int, int]] | None:
        """Start and length of each segment of the queries; None if one is in several pieces."""
        return _runs(self.query_ids)

    @cached_property
    def key_runs(self) -> dict[int, tuple[int, int]] | None:
        """Start and length of each segment of the keys; None if one is in several pieces."""
        return self.query_runs if self.self_attention else _runs(self.key_ids)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.query_ids,) if self.self_attention else (self.query_ids, self.key_ids)

    def _aligned(self, grid: Grid) -> tuple[Tensor, Tensor]:
        query, key = self.query_ids.to(grid.device), self.key_ids.to(grid.device)
        return align(query, grid.leading, 1), align(key, grid.leading, 1)

    def __repr__(self) -> str:
        return f"segments{tuple(self.query_ids.shape)}"


def _runs(ids: Tensor) -> dict[int, tuple[int, int]] | None:
    numbers, counts = ids.unique_consecutive(return_counts=True)
    starts = counts.cumsum(0) - counts
    places = zip(starts.tolist(), counts.tolist(), strict=True)
    runs = dict(zip(numbers.tolist(), places, strict=True))
    return runs if len(runs) == len(numbers) else None


def segments(
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    *,
    cu_seqlens: Tensor | tuple[Tensor, Tensor] | None = None,
) -> Mask:
    """Queries see keys with the same id: several texts packed into one sequence.

    >>> segments(torch.tensor([0, 0, 1])).dense(3, 3).int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    >>> segments(cu_seqlens=torch.tensor([0, 2, 3]))  # the same
    segments(3,)

    Args:
        query_ids: integers (M,), or (B, M) lined up with the first leading dimension; given
            alone they are for self-attention
        key_ids: integers (N,) or (B, N)
        cu_seqlens: in place of ids the cumulative lengths of the texts, from 0 to M, as kernels
            for packed sequences take them; two of them for queries and keys
    """
    if cu_seqlens is not None:
        if query_ids is not None or key_ids is not None:
            raise TypeError("segments() takes ids or cu_seqlens, got both")
        both = cu_seqlens if isinstance(cu_seqlens, tuple) else (cu_seqlens,)
        if len(both) == 2 and len(both[0]) != len(both[1]):
            raise ValueError(
                f"cu_seqlens should be of as many texts on both sides, got {len(both[0]) - 1} and "
                f"{len(both[1]) - 1}"
            )
        return Segments(_ids(both[0]), _ids(both[1]) if len(both) == 2 else None)
    for ids in (query_ids, key_ids):
        whole = isinstance(ids, Tensor) and not ids.is_floating_point() and ids.dtype != torch.bool
        if (ids is not None or ids is query_ids) and not whole:
            kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"segments() takes a tensor of whole numbers, got {kind}")
        if ids is not None and ids.dim() == 0:
            raise ValueError("segments() takes ids of shape (length,) or (batch, length)")
    assert query_ids is not None
    # copies: the user may change the ids before backward
    return Segments(query_ids.clone(), None if key_ids is None else key_ids.clone())


def _ids(cu_seqlens: Tensor) -> Tensor:
    """The number of its text for each token of a packed sequence."""
    whole = isinstance(cu_seqlens, Tensor) and not cu_seqlens.is_floating_point()
    if not whole or cu_seqlens.dtype == torch.bool or cu_seqlens.dim() != 1 or not len(cu_seqlens):
        got = (
            f"{cu_seqlens.dtype} {tuple(cu_seqlens.shape)}" if whole else type(cu_seqlens).__name__
        )
        raise TypeError(f"cu_seqlens should be whole numbers (texts + 1,), got {got}")
    lengths = cu_seqlens.diff()
    if cu_seqlens[0] != 0 or (lengths < 0).any():
        raise ValueError(f"cu_seqlens should begin with 0 and not fall, got {cu_seqlens.tolist()}")
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
