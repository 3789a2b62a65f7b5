"""Tiles: which rectangles of the attention map to compute, and how the CPU kernels like them cut.

A planner turns the interval of keys that each query can see into few and large tiles. It works on
runs: neighbouring queries whose intervals change at a constant rate.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ALL = slice(None)
LANES = 16  # a multiple of this many keys leaves the kernels no remainder
LONG = 768  # queries from which the kernel skips the hidden half of a triangle
SHORT = 32  # queries; a shorter run is not worth a tile of its own
MASK_CELLS = 1 << 20  # cells of the mask that is materialized for one tile
_STEP = 64  # rows of the blocks into which a short causal map is cut
_FEW = 512  # keys up to which a remainder is a noticeable part of the work
_EDGE = np.where(np.arange(_FEW + LANES) < _FEW, np.float32(0), np.float32(-math.inf))

TileMask = Callable[[slice, slice, slice], Tensor]


class Tile(NamedTuple):
    """A rectangle of the map that is computed."""

    batch: slice
    rows: slice  # queries; each belongs to one tile, or to one and the tiles that continue it
    keys: slice
    mask: Tensor | None = None  # bool, True = may attend; or float to add, where -inf hides
    causal: bool = False  # row i of the tile sees its keys 0 … i
    continues: bool = False  # more keys for the rows of the previous tile; if causal, without masks


WHOLE = (Tile(ALL, ALL, ALL),)
"""The whole map without a mask. Compared by identity, since small calls notice every check."""


def is_whole(tiles: Sequence[Tile]) -> bool:
    """Whether one tile, written with slice(None), covers the map."""
    if len(tiles) != 1:
        return False
    batch, rows, keys, *_ = tiles[0]
    return (batch, rows, keys) == (ALL, ALL, ALL)


def covers(tiles: Sequence[Tile], batch: int, length: int) -> bool:
    """Whether every query is in some tile."""
    sizes = (
        len(range(batch)[tile.batch]) * len(range(length)[tile.rows])
        for tile in tiles
        if not tile.continues
    )
    return sum(sizes) == batch * length


def continued(tiles: Sequence[Tile], *, causal: bool = True) -> list[list[Tile]]:
    """Tiles together with those that continue them: all keys of some rows.

    Args:
        causal: whether a causal tile is put with the one that it continues
    """
    groups: list[list[Tile]] = []
    for tile in tiles:
        if tile.continues and (causal or not tile.causal):
            groups[-1].append(tile)
        else:
            groups.append([tile])
    return groups


def pad_keys(tile: Tile, keys: int) -> Tile:
    """The tile with a few more keys, hidden by a mask, if this leaves no remainder.

    Without a mask 127 keys take a third longer than 128.
    """
    start, stop, _ = tile.keys.indices(keys)
    size, more = stop - start, (start - stop) % LANES
    if tile.mask is not None or tile.causal or not more or size > _FEW or stop + more > keys:
        return tile
    mask = torch.from_numpy(_EDGE[_FEW - size : _FEW + more])
    return tile._replace(keys=slice(start, stop + more), mask=mask)


def split_causal(tiles: Sequence[Tile], shape: Sequence[int], keys: int) -> Sequence[Tile]:
    """The tiles, a short causal map of queries (B, H, M, D) cut into blocks of rows.

    The kernel computes 512 keys at a time, hidden or not, and below 768 queries it gains nothing
    from what is hidden.
    """
    batch, heads, length, _ = shape
    if (
        _STEP < length < LONG
        and length == keys
        and batch * heads * length**2 >= 1 << 20
        and is_whole(tiles)
        and tiles[0].causal
        and tiles[0].mask is None
    ):
        return triangle(length)
    return tiles


def triangle(length: int) -> list[Tile]:
    """Blocks of rows that end on the diagonal of a square causal map."""
    mask = torch.from_numpy(_diagonal(length))
    tiles = []
    for start in range(0, length, _STEP):
        stop = min(start + _STEP, length)
        part = mask[start - stop :, -stop:]
        tiles.append(Tile(ALL, slice(start, stop), slice(0, stop), part))
    return tiles


@lru_cache(maxsize=8)
def _diagonal(length: int) -> np.ndarray:
    """The mask of the last block of rows. An array: a cached tensor could be a fake one."""
    shown = np.arange(1 - length, _STEP) <= np.arange(_STEP)[:, None]
    return np.where(shown, np.float32(0), np.float32(-math.inf))


def plan_tiles(
    low: Tensor,
    high: Tensor,
    full: Tensor,
    tile_mask: TileMask,
    queries: int,
    keys: int,
    block: int | None = None,
) -> list[Tile]:
    """Few and large tiles that hold all visible cells and little else.

    A padded batch becomes a tile per sequence, a window blocks of rows, packed segments a tile
    each, a causal mask a rectangle and a triangle. Neighbours in the batch with equal intervals
    share their tiles. Queries that see nothing are in no tile, or masked in one.

    >>> ends = torch.tensor([[1, 2, 3]])
    >>> (tile,) = plan_tiles(0 * ends, ends, ends > 0, lambda *slices: None, queries=3, keys=3)
    >>> tile.rows, tile.keys, tile.causal
    (slice(0, 3, None), slice(0, 3, None), True)

    Args:
        low, high: query i of entry b sees no key outside of [low, high), (B or 1, M)
        full: whether it sees every key in this interval, (B or 1, M)
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
        for piece in _pieces(alike, block or 64):
            tiles += planner.tiles(piece, batch, entry)
    return tiles


class Run(NamedTuple):
    """Queries start … stop - 1, of which number i sees the keys [low + a·i, high + b·i)."""

    start: int
    stop: int
    low: int
    high: int
    slope: tuple[int, int]  # (a, b): (0, 0) is a rectangle, (0, 1) causal, (1, 1) a window
    full: bool  # whether they see all of these keys, or only none outside

    @property
    def size(self) -> int:
        """The number of queries."""
        return self.stop - self.start

    def part(self, start: int, stop: int) -> "Run":
        """Some of its queries."""
        a, b = (slope * (start - self.start) for slope in self.slope)
        return self._replace(start=start, stop=stop, low=self.low + a, high=self.high + b)

    def hull(self) -> tuple[int, int]:
        """The smallest interval with all keys that one of the queries can see."""
        last = self.part(self.stop - 1, self.stop)
        return min(self.low, last.low), max(self.high, last.high)


def find_runs(lows: np.ndarray, highs: np.ndarray, fulls: np.ndarray) -> list[list[Run]]:
    """The runs of each entry, without queries that see nothing.

    >>> find_runs(np.array([[0, 0, 0, 0]]), np.array([[5, 5, 6, 7]]), np.ones((1, 4), bool))[0]
    [Run(start=0, stop=2, low=0, high=5, slope=(0, 0), full=True),
     Run(start=2, stop=4, low=0, high=6, slope=(0, 1), full=True)]

    Args:
        lows, highs, fulls: the interval of every query and whether it is full, (entries, M)
    """
    entries, queries = lows.shape
    blind = lows >= highs
    a, b = lows[:, 1:] - lows[:, :-1], highs[:, 1:] - highs[:, :-1]  # from a query to the next
    ends = (fulls[:, 1:] != fulls[:, :-1]) | (blind[:, 1:] != blind[:, :-1])
    turns = ends.copy()
    turns[:, 1:] |= (a[:, 1:] != a[:, :-1]) | (b[:, 1:] != b[:, :-1])
    starts = [[0] for _ in range(entries)]
    for entry, query in np.argwhere(turns).tolist():
        # a step unlike the one before ends a run, unless it is the first step of its run
        if query > starts[entry][-1] or ends[entry, query]:
            starts[entry].append(query + 1)
    return [
        [
            Run(
                start,
                stop,
                int(lows[entry, start]),
                int(highs[entry, start]),
                (int(a[entry, start]), int(b[entry, start])) if stop - start > 1 else (0, 0),
                bool(fulls[entry, start]),
            )
            for start, stop in zip(own, [*own[1:], queries], strict=True)
            if queries and not blind[entry, start]
        ]
        for entry, own in enumerate(starts)
    ]


def _pieces(runs: Sequence[Run], block: int) -> Iterator[Sequence[Run]]:
    """Long runs alone; short ones together with their neighbours, within a block of queries."""
    short: list[Run] = []
    for run in runs:
        if short and (run.size >= SHORT or run.stop - short[0].start > block):
            yield short
            short = []
        if run.size >= SHORT:
            yield [run]
        else:
            short.append(run)
    if short:
        yield short


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
        before = run.high - 1 - run.low  # keys left of the triangle of a causal run
        if len(piece) > 1:
            yield self.ragged(piece, batch, entry)
        elif run.full and run.slope == (0, 0):
            yield Tile(batch, rows, slice(run.low, run.high))
        elif (  # a triangle and the rectangle before it are faster than blocks of rows
            run.full
            and run.slope == (0, 1)
            and (before == 0 or before >= run.size or run.size >= LONG)
        ):
            if before:
                yield Tile(batch, rows, slice(run.low, run.high - 1))
            keys = slice(run.high - 1, run.high - 1 + run.size)
            yield Tile(batch, rows, keys, causal=True, continues=before > 0)
        else:
            yield from self.blocks(run, batch)

    def ragged(self, piece: Sequence[Run], batch: slice, entry: int) -> Tile:
        """One block for short runs with unrelated intervals."""
        rows = slice(piece[0].start, piece[-1].stop)
        lows, highs = self.lows[entry, rows, None], self.highs[entry, rows, None]
        seeing = lows < highs
        low, high = self.lanes(int(lows[seeing].min()), int(highs[seeing].max()))
        if all(run.full for run in piece):
            keys = np.arange(low, high)
            mask = _bias((lows <= keys) & (keys < highs))
        else:
            mask = self.tile_mask(batch, rows, slice(low, high))
        return Tile(batch, rows, slice(low, high), mask)

    def blocks(self, run: Run, batch: slice) -> Iterator[Tile]:
        """Blocks of rows, each with the keys that one of its rows can see."""
        width = run.high - run.low
        size = self.block or (96 if width < 512 else 192)
        if run.slope == (0, 0):
            size = max(size, MASK_CELLS // width)
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
        """An interval widened to a multiple of `LANES` keys where there are enough."""
        high = min(self.keys, high + (low - high) % LANES)
        return max(0, low - (low - high) % LANES), high


def _sloping(a: int, b: int, rows: int, low: int, high: int, keys: int) -> Tensor:
    """Row i sees the keys [low + a·i, high + b·i), (rows, keys).

    >>> _sloping(1, 1, rows=2, low=0, high=2, keys=3)
    tensor([[0., 0., -inf],
            [-inf, 0., 0.]])
    """
    row, key = np.arange(rows)[:, None], np.arange(keys)
    return _bias((low + a * row <= key) & (key < high + b * row))


def _bias(shown: np.ndarray) -> Tensor:
    """A mask to add to the scores, in float32."""
    return torch.from_numpy(np.where(shown, np.float32(0), np.float32(-math.inf)))
