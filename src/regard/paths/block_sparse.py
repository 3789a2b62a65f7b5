"""The block-sparse path: visible blocks of keys, wherever they are, joined for blocks of queries.

For masks that are no interval of keys: a window with global tokens, a pattern of blocks, unions.
The visible blocks of some rows are copied side by side and go to torch's flash attention in one
call, forward and backward.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from regard.core.blocks import can_inspect_values
from regard.core.mask import Window
from regard.core.request import Request
from regard.paths import banded, fused
from regard.paths.layout import Layout, layout
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import ALL, Tile, TileMask

SIZE = 64
"""Queries and keys of a block."""

COPIED = 24
"""Rows whose attention takes as long as copying their keys and values, and adding gradients."""


def unsupported_reason(request: Request) -> str | None:
    """Why this request cannot run in blocks, or None."""
    return banded.unsupported_anyway(request)


def faster(request: Request) -> str | None:
    """The path that skips enough hidden blocks to be faster than the fused one, or None."""
    mask = request.mask
    if mask is None or fused.is_small(request) or banded.unsupported_anyway(request):
        return None
    if isinstance(mask, Window) and mask.square_causal(*request.size):
        return None  # torch's own is_causal skips the upper triangle
    if not can_inspect_values(request.query):
        return None
    cells = request.queries * request.keys
    table = any(tensor.numel() >= cells for tensor in mask.tensors())
    if table and not banded.pays(request, cells_in_blocks(request)):
        return None  # reading a table in blocks takes far less time than row by row
    keys = banded.key_range(request)
    in_range = in_blocks = request.cells
    if keys is not None:
        in_range = banded.cells_in(keys, request)
    if keys is None or not torch.as_tensor(keys.full).all():  # else the intervals are exact
        in_blocks = round((1 + COPIED / SIZE) * cells_in_blocks(request))
    path, visible = ("banded", in_range) if in_range <= in_blocks else ("block_sparse", in_blocks)
    return path if banded.pays(request, visible) else None


def cells_in_blocks(request: Request) -> int:
    """The number of cells of the map that lie in visible blocks."""
    assert request.mask is not None
    some = request.mask.block_map(request.grid, SIZE).some
    rows, columns = (-(-length // SIZE) for length in request.size)
    share = some.expand(*some.shape[:-2], rows, columns).float().mean()
    return round(float(share) * request.cells)


def block_sparse(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ, mask) V over the visible blocks, (..., M, Dv)."""
    query, key, scale = fused.divided_form(request)
    mask, grid = request.mask, request.grid
    assert mask is not None
    fold = layout(request.leading, request.key, request.value)
    some, every = (fold.fold_mask(table) for table in mask.block_map(grid, SIZE))
    if some.shape[1] > 1:  # the heads of one sequence see different keys
        fold = Layout(request.leading, len(request.leading), grouped=False)
        some, every = (fold.fold_mask(table) for table in mask.block_map(grid, SIZE))

    def tile_mask(batch: slice, rows: slice, columns: slice) -> Tensor:
        block = fold.fold_mask(mask.block(rows, columns, grid))
        return block if block.shape[0] == 1 else block[batch]

    tiles = plan_blocks(some[:, 0], every[:, 0], tile_mask, *request.size)
    folded = (fold.fold_query(query), fold.fold_key(key), fold.fold_key(request.value))
    return fold.unfold(attend_tiles(*folded, tiles, scale, fused.sink_of(request, fold)))


def plan_blocks(
    some: Tensor, every: Tensor, tile_mask: TileMask, queries: int, keys: int
) -> list[Tile]:
    """Tiles that hold all visible blocks; those of the same rows continue each other.

    >>> some = torch.tensor([[[True, False, True]]])
    >>> [tile.keys for tile in plan_blocks(some, some, lambda *slices: None, 64, 192)]
    [slice(0, 64, None), slice(128, 192, None)]

    Args:
        some, every: a `BlockMap`, (B or 1, blocks of queries or 1, blocks of keys or 1)
        tile_mask: (batch, rows, keys) to the mask of a tile that does not show all of its cells
        queries, keys: M and N
    """
    shape = (max(len(some), len(every)), -(-queries // SIZE), -(-keys // SIZE))
    shown, full = (np.broadcast_to(t.cpu().numpy(), shape) for t in (some, every))
    tiles: list[Tile] = []
    alike = [shown[entry].tobytes() + full[entry].tobytes() for entry in range(len(shown))]
    for _, group in groupby(range(len(shown)), lambda entry: alike[entry]):
        entry, *others = group
        batch = ALL if len(shown) == 1 else slice(entry, entry + 1 + len(others))
        for first, last, columns in _row_blocks(shown[entry]):
            rows = slice(first * SIZE, min(last * SIZE, queries))
            slices = [slice(a * SIZE, min(b * SIZE, keys)) for a, b in _runs(columns)]
            masks: Sequence[Tensor | None] = [None] * len(slices)
            if not full[entry, first:last, columns].all():
                parts = [tile_mask(batch, rows, part) for part in slices]
                wide = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
                masks = [part.expand(*wide, part.shape[-1]) for part in parts]
            for number, (part, mask) in enumerate(zip(slices, masks, strict=True)):
                tiles.append(Tile(batch, rows, part, mask, continues=number > 0))
    return tiles


def _row_blocks(shown: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Blocks of rows first … last - 1 with the blocks of keys that one of them sees.

    Neighbours are put together as long as this takes less time: keys are then copied once.
    """
    first, columns = 0, np.zeros(shown.shape[1], bool)
    for row, own in enumerate(shown):
        joined, size = columns | own, row - first
        apart = (size * SIZE + COPIED) * columns.sum() + (SIZE + COPIED) * own.sum()
        if size and ((size + 1) * SIZE + COPIED) * joined.sum() > apart:
            if columns.any():
                yield first, row, columns
            first, columns = row, own
        else:
            columns = joined
    if columns.any():
        yield first, len(shown), columns


def _runs(columns: np.ndarray) -> list[tuple[int, int]]:
    """The intervals of True.

    >>> _runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(columns.astype(np.int8), prepend=0, append=0))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
