"""Which rectangles of the map to compute, from the interval of keys that each query can see."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from regard.paths.runs import Run, find_runs, pieces
from regard.paths.tile import ALL, LANES, Tile
from regard.paths.tiled import attend_tiles

__all__ = ["Tile", "attend_tiles", "plan_tiles"]

TileMask = Callable[[slice, slice, slice], Tensor]

LONG = 768  # queries from which the kernel skips the hidden half of a triangle
CELLS = 1 << 20  # of a mask that is written out for one tile


def plan_tiles(
    low: Tensor,
    high: Tensor,
    full: Tensor,
    tile_mask: TileMask,
    queries: int,
    keys: int,
    block: int | None = None,
) -> list[Tile]:
    """Few and large tiles that hold everything within reach and little else.

    A padded batch becomes a tile for each sequence, a window blocks of rows, packed segments a
    tile each, a causal mask a rectangle and a triangle. Neighbours in the batch that see the same
    share their tiles. Queries that see nothing are in no tile, or masked in one.

    >>> ends = torch.tensor([[1, 2, 3]])
    >>> (tile,) = plan_tiles(0 * ends, ends, ends > 0, lambda *slices: None, queries=3, keys=3)
    >>> tile.rows, tile.keys, tile.causal
    (slice(0, 3, None), slice(0, 3, None), True)

    Args:
        low, high: query i of entry b sees nothing outside of the keys [low, high), (B or 1, M)
        full: and where this holds all of them, (B or 1, M)
        tile_mask: (batch, rows, keys) to the mask of a tile, for queries that are not full
        queries, keys: M and N
        block: rows of a block where the interval moves; chosen by its width if None
    """
    shape = (low.shape[0], queries)
    lows, highs, fulls = (np.broadcast_to(t.cpu().numpy(), shape) for t in (low, high, full))
    planner = _Planner(lows, highs, tile_mask, keys, block)
    runs = find_runs(lows, highs, fulls)
    tiles: list[Tile] = []
    for alike, group in groupby(range(len(runs)), lambda entry: runs[entry]):
        entry, *others = group
        batch = ALL if len(runs) == 1 else slice(entry, entry + 1 + len(others))
        for piece in pieces(alike, block or 64):
            tiles += planner.tiles(piece, batch, entry)
    return tiles


class _Planner:
    """Makes the tiles of runs, and the masks that tiles share."""

    def __init__(
        self,
        lows: np.ndarray,
        highs: np.ndarray,
        tile_mask: TileMask,
        keys: int,
        block: int | None,
    ) -> None:
        self.lows, self.highs, self.tile_mask = lows, highs, tile_mask
        self.keys, self.block = keys, block
        self.masks: dict[tuple[int, ...], Tensor] = {}

    def tiles(self, piece: Sequence[Run], batch: slice, entry: int) -> Iterator[Tile]:
        """The tile of several short runs, or the tiles of a single one."""
        run = piece[0]
        rows = slice(run.start, run.stop)
        if len(piece) > 1:
            yield self.ragged(piece, batch, entry)
        elif run.full and run.slope == (0, 0):
            yield Tile(batch, rows, slice(run.low, run.high))
        elif run.full and run.slope == (0, 1) and _is_triangle(run):
            diagonal = run.high - 1
            if run.low < diagonal:
                yield Tile(batch, rows, slice(run.low, diagonal))
            keys = slice(diagonal, diagonal + run.size)
            yield Tile(batch, rows, keys, causal=True, continues=run.low < diagonal)
        else:
            yield from self.blocks(run, batch)

    def ragged(self, piece: Sequence[Run], batch: slice, entry: int) -> Tile:
        """One block for short runs whose intervals have little to do with each other."""
        rows = slice(piece[0].start, piece[-1].stop)
        lows, highs = self.lows[entry, rows, None], self.highs[entry, rows, None]
        seeing = lows < highs
        low, high = self.lanes(int(lows[seeing].min()), int(highs[seeing].max()))
        if all(run.full for run in piece):
            keys = np.arange(low, high)
            mask = _added((lows <= keys) & (keys < highs))
        else:
            mask = self.tile_mask(batch, rows, slice(low, high))
        return Tile(batch, rows, slice(low, high), mask)

    def blocks(self, run: Run, batch: slice) -> Iterator[Tile]:
        """Blocks of rows, each with the keys that one of its rows can see."""
        width = run.high - run.low
        size = self.block or (96 if width < 512 else 192)
        if run.slope == (0, 0):
            size = max(size, CELLS // width)
        for start in range(run.start, run.stop, size):
            part = run.part(start, min(start + size, run.stop))
            rows = slice(part.start, part.stop)
            low, high = self.lanes(*part.hull())
            if run.full:
                shape = (*run.slope, part.size, part.low - low, part.high - low, high - low)
                if shape not in self.masks:
                    self.masks[shape] = _sloping(*shape)
                mask = self.masks[shape]
            else:
                mask = self.tile_mask(batch, rows, slice(low, high))
            yield Tile(batch, rows, slice(low, high), mask)

    def lanes(self, low: int, high: int) -> tuple[int, int]:
        """An interval with a few more keys, so that they are whole lanes where possible."""
        high = min(self.keys, high + (low - high) % LANES)
        return max(0, low - (low - high) % LANES), high


def _is_triangle(run: Run) -> bool:
    """Whether a triangle and the rectangle before it are faster than blocks of rows."""
    before = run.high - 1 - run.low
    return before == 0 or before >= run.size or run.size >= LONG


def _sloping(a: int, b: int, rows: int, low: int, high: int, keys: int) -> Tensor:
    """Row i sees the keys [low + a·i, high + b·i), (rows, keys).

    >>> _sloping(1, 1, rows=2, low=0, high=2, keys=3)
    tensor([[0., 0., -inf],
            [-inf, 0., 0.]])
    """
    row, key = np.arange(rows)[:, None], np.arange(keys)
    return _added((low + a * row <= key) & (key < high + b * row))


def _added(shown: np.ndarray) -> Tensor:
    """A mask to add, in float32, which the kernels take as it is."""
    return torch.from_numpy(np.where(shown, np.float32(0), np.float32(-math.inf)))
