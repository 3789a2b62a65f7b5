"""The attention map W, computed where and when somebody looks at it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.core.blocks import block_rows


class TopK(NamedTuple):
    """The largest weights of each query and the keys they belong to, (..., M, k)."""

    values: Tensor
    indices: Tensor


class Edges(NamedTuple):
    """Attention as a graph: query ← key with a weight, one entry per edge.

    Under leading dimensions the graphs stand side by side, as in a batch of graphs: query i of
    map number b is node b · M + i, key j is node b · N + j.
    """

    query: Tensor
    key: Tensor
    weight: Tensor


class Rows:
    """A tensor (..., M, N) whose rows are computed when asked for.

    Args:
        compute: rows of M, as a slice with start and stop, to a tensor (..., rows, N)
        shape: the whole shape
    """

    def __init__(self, compute: Callable[[slice], Tensor], shape: tuple[int, ...]) -> None:
        self._compute = compute
        self.shape = torch.Size(shape)

    def __getitem__(self, index: Any) -> Tensor:
        """Index with whole numbers, slices and `...`; only the rows asked for are computed."""
        *leading, row, column = _full_index(index, self.shape)
        start, stop, step = slice(*_bounds(row)).indices(self.shape[-2])
        if isinstance(row, int) and not -self.shape[-2] <= row < self.shape[-2]:
            raise IndexError(f"query {row} of a map with {self.shape[-2]} queries")
        picked = [block[(*leading, slice(None), column)] for _, block in self._blocks(start, stop)]
        if not picked:
            rows = self._compute(slice(0, 0)).expand(*self.shape[:-2], 0, self.shape[-1])
            picked = [rows[(*leading, slice(None), column)]]
        dim = -1 if isinstance(column, int) else -2
        whole = torch.cat(picked, dim=dim)
        if isinstance(row, int):
            return whole.select(dim, 0)
        every = torch.arange(0, stop - start, step, device=whole.device)
        return whole if step == 1 else whole.index_select(dim, every)

    def dense(self) -> Tensor:
        """All of it, (..., M, N)."""
        return self[...]

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[slice, Tensor]]:
        """The rows from start to stop, a block at a time."""
        step = block_rows(self.shape[:-2].numel() * self.shape[-1])
        for first in range(start, stop, step):
            rows = slice(first, min(first + step, stop))
            block = self._compute(rows)
            yield rows, block.expand(*self.shape[:-2], rows.stop - first, self.shape[-1])

    def _each(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of rows (..., rows, N) -> (..., rows, k), over all rows."""
        parts = [function(block) for _, block in self._blocks(0, self.shape[-2])]
        return torch.cat(parts, dim=-2) if parts else function(self[..., 0:0, :])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)})"


class AttentionMap(Rows):
    """W = normalize(A + mask), (..., M, N): each row is one query's attention distribution.

    It is lazy: it keeps what the call was made of, and computes the rows that are asked for, in
    blocks, before dropout. Gradients flow through it.

    Args:
        compute: rows to weights
        scores: rows to scores; None if the map is implied and there never were any
        shape: (..., M, N)
    """

    def __init__(
        self,
        compute: Callable[[slice], Tensor],
        scores: Callable[[slice], Tensor] | None,
        shape: tuple[int, ...],
    ) -> None:
        super().__init__(compute, shape)
        self._scores = scores

    @property
    def scores(self) -> Rows:
        """A = f(Q, K) + bias, before normalizing and without the mask, as lazy as the map."""
        if self._scores is None:
            raise ValueError("this map was not made from scores: linear attention has none")
        return Rows(self._scores, self.shape)

    def topk(self, k: int) -> TopK:
        """The k largest weights of each query; fewer if there are fewer keys."""
        if k < 0:
            raise ValueError(f"topk needs a number of keys from 0, got {k}")
        k = min(k, self.shape[-1])
        parts = [block.topk(k, dim=-1) for _, block in self._blocks(0, self.shape[-2])]
        if not parts:
            parts = [self[..., 0:0, :].topk(k, dim=-1)]
        return TopK(torch.cat([p[0] for p in parts], -2), torch.cat([p[1] for p in parts], -2))

    def entropy(self) -> Tensor:
        """−Σ w log w of each query, in nats, (..., M): 0 looks at one key, log N at all alike."""

        def rows(weights: Tensor) -> Tensor:
            floor = torch.finfo(weights.dtype).tiny  # keeps the gradient at 0 finite
            return -(weights * weights.clamp(min=floor).log()).sum(-1, keepdim=True)

        return self._each(rows).squeeze(-1)

    def pooled(self, size: int) -> Tensor:
        """Max-pooled to at most size × size, so that a single spike stays visible.

        Returns: (..., min(size, M), min(size, N))
        """
        if size < 1:
            raise ValueError(f"pooled needs a size of at least 1, got {size}")
        length, width = self.shape[-2:]
        height = min(size, length)
        pooled = []
        for index in range(height):  # rows of one bin: floor to ceil, as adaptive pooling does
            start, stop = index * length // height, -(-(index + 1) * length // height)
            best: Tensor | None = None
            for _, block in self._blocks(start, stop):
                row = _pool_keys(block.amax(dim=-2, keepdim=True), min(size, width))
                best = row if best is None else torch.maximum(best, row)
            assert best is not None
            pooled.append(best)
        if not pooled:
            return self[..., 0:0, :][..., : min(size, width)]
        return torch.cat(pooled, dim=-2)

    def edges(self, top_k: int | None = None) -> Edges:
        """The map as a weighted graph: edges of weight above zero, `top_k` per query or all.

        Summing weight · value over a query's edges gives back the output of the attention.
        """
        length, width = self.shape[-2:]
        weight, key = self.topk(width if top_k is None else top_k)
        count = self.shape[:-2].numel()
        k = weight.shape[-1]
        weight, key = weight.reshape(count, length, k), key.reshape(count, length, k)
        graph = torch.arange(count, device=key.device).view(-1, 1, 1)
        query = graph * length + torch.arange(length, device=key.device).view(1, -1, 1)
        real = weight > 0
        return Edges(query.expand(key.shape)[real], (graph * width + key)[real], weight[real])


def _pool_keys(row: Tensor, size: int) -> Tensor:
    """Max-pool (..., 1, N) to (..., 1, size)."""
    width = row.shape[-1]
    if size and width % size == 0:
        return row.unflatten(-1, (size, -1)).amax(-1)
    if not size:
        return row
    flat = row.reshape(1, -1, width)
    return F.adaptive_max_pool1d(flat, size).reshape(*row.shape[:-1], size)


def _full_index(index: Any, shape: torch.Size) -> list[int | slice]:
    """An index with one entry per dimension."""
    parts = list(index) if isinstance(index, tuple) else [index]
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int | slice | type(...)):
            raise TypeError(
                f"a lazy map is indexed with whole numbers, slices and ..., got "
                f"{type(part).__name__}; for anything else use .dense()[...]"
            )
    if Ellipsis not in parts:
        parts.append(...)
    if parts.count(...) > 1:
        raise IndexError("an index can have only one '...'")
    missing = len(shape) - (len(parts) - 1)
    if missing < 0:
        raise IndexError(f"too many indices for a map of shape {tuple(shape)}")
    place = parts.index(...)
    return parts[:place] + [slice(None)] * missing + parts[place + 1 :]


def _bounds(row: int | slice) -> tuple[int | None, int | None, int | None]:
    if isinstance(row, slice):
        return row.start, row.stop, row.step
    return (row, row + 1 or None, 1)
