"""The attention map W, computed row by row on access."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.core import blocks
from regard.core.blocks import block_rows, in_functorch, recomputed
from regard.core.score import precise
from regard.core.ties import at_least, largest

Parts = tuple[Tensor, ...]


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
    """A tensor (..., M, N) whose rows are computed on access.

    Args:
        compute: rows of M, as a slice with start and stop, to a tensor (..., rows, N)
        shape: the whole shape
    """

    def __init__(self, compute: Callable[[slice], Tensor], shape: tuple[int, ...]) -> None:
        self._compute = compute
        self.shape = torch.Size(shape)

    @classmethod
    def of(cls, values: Tensor) -> "Rows":
        """Return the rows of a tensor, (..., M, N)."""
        return Rows(lambda rows: values[..., rows, :], tuple(values.shape))

    def __reduce__(self) -> Any:
        """A copy, and a pickle, has all rows computed, and no gradient."""
        with torch.no_grad():
            return Rows.of, (self.dense(),)

    def __getitem__(self, index: Any) -> Tensor:
        """Index with whole numbers, slices and `...`; only the selected rows are computed."""
        if torch.compiler.is_exporting():  # a graph for any size has no blocks
            return self._compute(slice(0, self.shape[-2])).expand(self.shape)[index]
        *leading, row, column = full_index(index, self.shape)
        rows = _rows(row, self.shape[-2])
        place = (*leading, slice(None), column)
        dim = -1 if isinstance(column, int) else -2
        (picked,) = _join(self._each(lambda block: (block[place],), rows), len(rows), dim)
        return picked.select(dim, 0) if isinstance(row, int) else picked

    def dense(self) -> Tensor:
        """The whole tensor, (..., M, N)."""
        return self[...]

    def _each(self, function: Callable[[Tensor], Parts], rows: range) -> Iterator[Parts]:
        """Yield a function of the selected rows, a block at a time.

        The blocks of a large map are recomputed in backward, so that only one of them is in
        memory at a time. Rows that are not neighbours are computed singly.
        """
        # small enough for the cache, since only weights are computed
        budget = blocks.BLOCK_ELEMENTS // 4
        elements = self.shape[:-2].numel() * self.shape[-1]
        size = block_rows(elements, budget) if rows.step == 1 else 1
        large = self.shape.numel() > blocks.BLOCK_ELEMENTS
        again = large and torch.is_grad_enabled() and not in_functorch()

        def block(first: int) -> Parts:
            some = rows[first : first + size]
            found = self._compute(slice(some[0], some[-1] + 1) if some else slice(0, 0))
            return function(found.expand(*self.shape[:-2], len(some), self.shape[-1]))

        for first in range(0, len(rows), size) or range(1):  # no rows are a block too
            yield recomputed(block, first) if again else block(first)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.shape))})"


class AttentionMap(Rows):
    """W = normalize(A + mask), (..., M, N): each row is one query's attention distribution.

    It is lazy: it keeps the inputs of the call and computes the selected rows, in blocks, before
    dropout. Reading it raises if an input was changed in place since; of tensors that were made in
    inference mode, where torch counts no changes, it keeps copies. Gradients flow through it. A
    pickle or a deep copy of it has all weights and scores, computed.

    Args:
        compute: rows to weights
        scores: rows to scores; None if the map is implied and has none
        shape: (..., M, N)
        example: from an index of the first dimension to the map of that entry, if it can be
            computed without the others, or None
    """

    def __init__(
        self,
        compute: Callable[[slice], Tensor],
        scores: Callable[[slice], Tensor] | None,
        shape: tuple[int, ...],
        example: Callable[[int], "AttentionMap | None"] | None = None,
    ) -> None:
        super().__init__(compute, shape)
        self._scores, self._example = scores, example

    @classmethod
    def of(cls, weights: Tensor, scores: Tensor | None = None) -> "AttentionMap":
        """Return a map of given weights, (..., M, N)."""
        return cls(
            lambda rows: weights[..., rows, :],
            None if scores is None else lambda rows: scores[..., rows, :],
            weights.shape,
        )

    def __reduce__(self) -> Any:
        with torch.no_grad():
            scores = None if self._scores is None else self.scores.dense()
            return AttentionMap.of, (self.dense(), scores)

    def changed(self, change: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> "AttentionMap":
        """Return the map of a function of its rows, (..., rows, N), as lazy as before.

        Args:
            shape: of the result, (..., M, N)
        """
        return self._like(
            lambda rows: change(self[..., rows, :]),
            None if self._scores is None else lambda rows: change(self.scores[..., rows, :]),
            shape,
        )

    def example(self, index: int) -> "AttentionMap":
        """The map of one entry of the first dimension, without computing the others if possible."""
        own = None if self._example is None else self._example(index)
        return self.part((index,), slice(None), slice(None)) if own is None else own

    def part(self, place: tuple[int, ...], rows: slice, columns: slice) -> "AttentionMap":
        """A part of the map, lazily.

        Args:
            place: indices of the first dimensions
            rows, columns: which of them
        """
        which, width = range(self.shape[-2])[rows], len(range(self.shape[-1])[columns])

        def picked(some: slice) -> slice:
            range = which[some]
            return slice(range.start, max(range.stop, 0), range.step)

        def weights(some: slice) -> Tensor:
            return self[(*place, ..., picked(some), columns)]

        def scores(some: slice) -> Tensor:
            return self.scores[(*place, ..., picked(some), columns)]

        shape = (*self.shape[len(place) : -2], len(which), width)
        return self._like(weights, None if self._scores is None else scores, shape)

    def _like(
        self,
        compute: Callable[[slice], Tensor],
        scores: Callable[[slice], Tensor] | None,
        shape: tuple[int, ...],
    ) -> "AttentionMap":
        """Return a map that is derived from this one."""
        return AttentionMap(compute, scores, shape)

    @property
    def scores(self) -> Rows:
        """A = f(Q, K) + bias, before normalizing and without the mask, as lazy as the map."""
        if self._scores is None:
            raise ValueError(
                "this map was not made from scores: linear attention and exported models have none"
            )
        return Rows(self._scores, self.shape)

    def _repr_html_(self) -> str:
        """Heatmaps of the first matrices, for notebooks."""
        from regard.visual.notebook import map_html

        return map_html(self)

    def topk(self, k: int) -> TopK:
        """The k largest weights of each query; fewer if there are fewer keys."""
        if k < 0:
            raise ValueError(f"topk needs a number of keys from 0, got {k}")
        k = min(int(k), self.shape[-1])
        rows = range(self.shape[-2])
        parts = self._each(lambda block: tuple(block.topk(k, dim=-1)), rows)
        return TopK(*_join(parts, len(rows), -2))

    def entropy(self) -> Tensor:
        """−Σ w log w of each query, in nats, (..., M): 0 for a single key, log N for all alike."""

        def entropy(weights: Tensor) -> Parts:
            weights = weights.to(precise(weights.dtype))
            floor = torch.finfo(weights.dtype).tiny  # keeps the gradient at 0 finite
            return (-(weights * at_least(weights, floor).log()).sum(-1),)

        rows = range(self.shape[-2])
        (found,) = _join(self._each(entropy, rows), len(rows), -1)
        return found

    def received(self) -> Tensor:
        """The weights that each key receives, summed over the queries, (..., N).

        What eviction of a cache goes by: a key that receives nothing is not missed.
        """
        rows = range(self.shape[-2])
        parts = self._each(lambda block: (block.sum(-2, dtype=precise(block.dtype)),), rows)
        return functools.reduce(torch.add, (part for (part,) in parts))

    def pooled(self, size: int) -> Tensor:
        """Max-pool to at most size × size, so that a single spike stays visible.

        Returns: (..., min(size, M), min(size, N))
        """
        if size < 1:
            raise ValueError(f"pooled needs a size of at least 1, got {size}")
        length, width = self.shape[-2:]
        height = min(size, length)

        def pool(weights: Tensor) -> Parts:
            return (_pool_keys(largest(weights, -2).unsqueeze(-2), min(size, width)),)

        def band(index: int) -> Parts:  # from floor to ceil, as in adaptive pooling
            rows = range(index * length // height, -(-(index + 1) * length // height))
            best = [row for (row,) in self._each(pool, rows)]
            return (largest(torch.cat(best, dim=-2), -2).unsqueeze(-2),)

        if height == 0:
            return self[..., : min(size, width)]
        (pooled,) = _join(map(band, range(height)), height, -2)
        return pooled

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


def _join(parts: Iterable[Parts], length: int, dim: int) -> Parts:
    """Parts side by side along `dim`, where they make up `length`.

    Without gradients each is copied to its place at once: small parts that wait for the end lie
    scattered between the large blocks, whose memory then cannot be used again.
    """
    parts = iter(parts)
    first = next(parts)
    if in_functorch() or any(part.requires_grad for part in first):
        return tuple(torch.cat(column, dim) for column in zip(first, *parts, strict=True))
    whole = tuple(part.new_empty(_resized(part.shape, length, dim)) for part in first)
    start = 0
    for some in itertools.chain([first], parts):
        for target, part in zip(whole, some, strict=True):
            target.narrow(dim, start, part.shape[dim]).copy_(part)
        start += some[0].shape[dim]
    return whole


def _resized(shape: torch.Size, length: int, dim: int) -> list[int]:
    sizes = list(shape)
    sizes[dim] = length
    return sizes


def _pool_keys(row: Tensor, size: int) -> Tensor:
    """Max-pool (..., 1, N) to (..., 1, size)."""
    width = row.shape[-1]
    if size and width % size == 0:
        return largest(row.unflatten(-1, (size, -1)), -1)
    if not size:
        return row
    flat = row.reshape(1, -1, width)
    return F.adaptive_max_pool1d(flat, size).reshape(*row.shape[:-1], size)


def full_index(index: Any, shape: torch.Size) -> list[int | slice]:
    """An index with one entry per dimension."""
    parts = list(index) if isinstance(index, tuple) else [index]
    for place, part in enumerate(parts):
        if isinstance(part, bool) or not isinstance(part, Integral | slice | type(...)):
            raise TypeError(
                f"a lazy map is indexed with whole numbers, slices and ..., got "
                f"{type(part).__name__}; for anything else use .dense()[...]"
            )
        if isinstance(part, Integral):
            parts[place] = int(part)  # NumPy's too
    if Ellipsis not in parts:
        parts.append(...)
    if parts.count(...) > 1:
        raise IndexError("an index can have only one '...'")
    missing = len(shape) - (len(parts) - 1)
    if missing < 0:
        raise IndexError(f"too many indices for a map of shape {tuple(shape)}")
    place = parts.index(...)
    return parts[:place] + [slice(None)] * missing + parts[place + 1 :]


def _rows(row: int | slice, length: int) -> range:
    """The rows, of `length`, that an index selects."""
    if isinstance(row, slice):
        if row.step is not None and row.step < 1:
            raise ValueError(f"a map is sliced with steps above 0, got {row.step}")
        return range(length)[row]
    if not -length <= row < length:
        raise IndexError(f"query {row} of a map with {length} queries")
    return range(row % length, row % length + 1)
