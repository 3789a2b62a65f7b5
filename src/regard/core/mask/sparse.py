"""Masks of sparse attention: global tokens and patterns of blocks. They compose with windows."""

import torch
from torch import Tensor

from regard.core import block_map as block_maps
from regard.core import key_range as ranges
from regard.core.block_map import BlockMap
from regard.core.key_range import KeyRange
from regard.core.mask.algebra import Grid, Mask, Visible, align, check_leading
from regard.core.mask.position import query_positions


class GlobalTokens(Mask):
    """Marked keys for all queries, and all keys for marked queries."""

    def __init__(self, marked: Tensor, queries: bool) -> None:
        self.marked, self.queries = marked, queries
        self.leading = marked.dim() - 1

    def check(self, grid: Grid) -> None:
        check_leading(self, grid.leading)

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return self._at(grid).block(rows, keys, grid)

    def key_range(self, grid: Grid) -> KeyRange:
        return self._at(grid).key_range(grid)

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        return self._at(grid).block_map(grid, size)

    def ignores_queries(self) -> bool:
        return not self.queries

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.marked,)

    def _at(self, grid: Grid) -> Mask:
        """The same for a map of this size: a row for the keys, and a column for the queries."""
        marked = align(self.marked.to(grid.device), grid.leading, 1)
        key = torch.arange(grid.keys, device=grid.device)
        keys = Visible(_looked_up(marked, key, -1).unsqueeze(-2))
        if not self.queries:
            return keys
        position = query_positions(slice(0, grid.queries), grid, None)
        return keys | Visible(_looked_up(marked, position, -1).unsqueeze(-1))

    def __repr__(self) -> str:
        more = "" if self.queries else ", queries=False"
        return f"global_tokens({tuple(self.marked.shape)}{more})"


def global_tokens(tokens: int | Tensor, *, queries: bool = True) -> Mask:
    """Every query sees the global tokens, and the global tokens see every key.

    A window with global tokens is `window(w, w) | global_tokens(g)` (Beltagy et al. 2020, §3.1;
    Zaheer et al. 2020, §2). A sliding window with attention sinks is
    `causal() & (window(w, 0) | global_tokens(4, queries=False))` (Xiao et al. 2024, §3.2).

    >>> from regard.core.mask import window
    >>> (window(0, 0) | global_tokens(1)).dense(3, 3).int()
    tensor([[1, 1, 1],
            [1, 1, 0],
            [1, 0, 1]], dtype=torch.int32)

    Args:
        tokens: how many of the first tokens are global; or bool (L,), or (B, L) lined up with the
            first leading dimension, True for tokens that are. Positions from L on are not
        queries: whether global tokens see every key; if False, they are only seen by all
    """
    if isinstance(tokens, Tensor):
        if tokens.dtype != torch.bool or tokens.dim() == 0:
            raise TypeError(
                "global_tokens() takes a number of tokens, or a bool tensor (length,) or "
                f"(batch, length), got {tokens.dtype} of shape {tuple(tokens.shape)}"
            )
        return GlobalTokens(tokens.clone(), queries)  # the user may change it before backward
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise ValueError(f"global_tokens() takes a number of tokens, 0 or more, got {tokens!r}")
    return GlobalTokens(torch.ones(tokens, dtype=torch.bool), queries)


class BlockSparse(Mask):
    """A pattern (..., rows, columns) of square blocks of queries and keys."""

    def __init__(self, pattern: Tensor, size: int, offset: int | None) -> None:
        self.pattern, self.size, self.offset = pattern, size, offset
        self.leading = pattern.dim() - 2

    def spread(self, grid: Grid) -> torch.Size:
        return self.pattern.shape[:-2]

    def check(self, grid: Grid) -> None:
        last = grid.keys - 1 if self.offset is None else self.offset + grid.queries - 1
        rows, columns = (count * self.size for count in self.pattern.shape[-2:])
        if last >= rows or grid.keys > columns:
            raise ValueError(
                f"block_sparse() has a pattern for {rows} queries and {columns} keys, but the last "
                f"query is at position {last} of {grid.keys} keys; it should have a row for each "
                f"{self.size} positions and a column for each {self.size} keys"
            )

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return self._of_keys(self._of_queries(rows, grid), keys, grid)

    def key_range(self, grid: Grid) -> KeyRange:
        low, high, full = ranges.of_rows(self._of_queries(slice(0, grid.queries), grid))
        return ranges.tidy(low * self.size, (high * self.size).clamp(max=grid.keys), full)

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        rows = self._of_queries(slice(0, grid.queries), grid).view(torch.uint8)
        some, every = (
            block_maps.reduced(
                self._of_keys(block_maps.reduced(rows, name, -2, size), slice(0, grid.keys), grid),
                name, -1, size,
            ).bool()
            for name in ("amax", "amin")
        )  # fmt: skip
        return BlockMap(some, every)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.pattern,)

    def _of_queries(self, rows: slice, grid: Grid) -> Tensor:
        """The row of the pattern of each query, (..., rows, columns of the pattern)."""
        position = query_positions(rows, grid, self.offset)
        row = position.div(self.size, rounding_mode="floor")
        pattern = self.pattern[..., : -(-grid.keys // self.size)].to(grid.device)
        return _looked_up(pattern, row, -2)

    def _of_keys(self, table: Tensor, keys: slice, grid: Grid) -> Tensor:
        """A table with a column of the pattern for each key."""
        column = torch.arange(keys.start, keys.stop, device=grid.device) // self.size
        return table.index_select(-1, column)

    def __repr__(self) -> str:
        return f"block_sparse({tuple(self.pattern.shape)}, {self.size})"


def block_sparse(pattern: Tensor, size: int, *, offset: int | None = None) -> Mask:
    """Query i sees key j if `pattern[..., i // size, j // size]`. Child et al. 2019, §4.

    >>> block_sparse(torch.tensor([[True, False], [True, True]]), 2).dense(4, 4).int()
    tensor([[1, 1, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 1],
            [1, 1, 1, 1]], dtype=torch.int32)

    Args:
        pattern: bool (..., rows, columns), True = may attend; it broadcasts as tensors do
        size: of a block, in queries and keys
        offset: position of the first query among the keys; N − M if not given
    """
    if not isinstance(pattern, Tensor) or pattern.dtype != torch.bool or pattern.dim() < 2:
        kind = type(pattern).__name__
        if isinstance(pattern, Tensor):
            kind = f"{pattern.dtype} of shape {tuple(pattern.shape)}"
        raise TypeError(f"block_sparse() takes a bool tensor (..., rows, columns), got {kind}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"the size of a block must be a number of keys, 1 or more, got {size!r}")
    return BlockSparse(pattern.clone(), size, offset)  # the user may change it before backward


def _looked_up(table: Tensor, index: Tensor, dim: int) -> Tensor:
    """Entries of a bool table along a dimension, False where the index is outside."""
    size = table.shape[dim]
    shape = list(table.shape)
    shape[dim] = 1
    padded = torch.cat((table, table.new_zeros(shape)), dim)  # Inductor cannot pad a bool tensor
    return padded.index_select(dim, index.masked_fill((index < 0) | (index >= size), size))
