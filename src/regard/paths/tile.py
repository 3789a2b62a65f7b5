"""Tiles: the rectangles of a map that are computed, and how the kernels like them cut."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

ALL = slice(None)
LANES = 16  # a multiple of this many keys leaves the kernels no remainder
_STEP = 64  # rows of the blocks that a short causal map is cut in
_FEW = 512  # keys, of which a remainder is a noticeable part
_EDGE = torch.where(torch.arange(_FEW + LANES) < _FEW, 0.0, -math.inf)


class Tile(NamedTuple):
    """A rectangle of the map in which somebody sees something."""

    batch: slice
    rows: slice  # queries; each belongs to one tile, or to one and the tiles that continue it
    keys: slice
    mask: Tensor | None = None  # bool, True = may attend; or float to add, where -inf hides
    causal: bool = False  # row i of the tile sees its keys 0 … i
    continues: bool = False  # more keys for the rows of the tile before; neither has a mask


WHOLE = (Tile(ALL, ALL, ALL),)
"""The whole map and no mask; known by identity, because small calls notice every look."""


def is_whole(tiles: Sequence[Tile]) -> bool:
    """Whether one tile, written with slice(None), covers the map."""
    return len(tiles) == 1 and tiles[0][:3] == (ALL, ALL, ALL)


def widened(tile: Tile, keys: int) -> Tile:
    """The tile, with some more keys that are hidden if this leaves no remainder.

    Without a mask 127 keys take a third longer than 128.
    """
    start, stop, _ = tile.keys.indices(keys)
    more = (start - stop) % LANES
    if (
        tile.mask is not None
        or tile.causal
        or not more
        or stop - start > _FEW
        or stop + more > keys
    ):
        return tile
    mask = _EDGE[_FEW - (stop - start) : _FEW + more]
    return tile._replace(keys=slice(start, stop + more), mask=mask)


def covers(tiles: Sequence[Tile], batch: int, length: int) -> bool:
    """Whether every query is in some tile."""
    sizes = (
        len(range(batch)[tile.batch]) * len(range(length)[tile.rows])
        for tile in tiles
        if not tile.continues
    )
    return sum(sizes) == batch * length


def in_blocks(tiles: Sequence[Tile], shape: Sequence[int], keys: int) -> Sequence[Tile]:
    """The tiles; a short causal map, for queries of `shape` (B, H, M, D), in blocks of rows.

    The kernel computes 512 keys at a time, hidden or not, and below 768 queries it gains nothing
    from what is hidden.
    """
    batch, heads, length, _ = shape
    if (
        _STEP < length < 768
        and length == keys
        and batch * heads * length**2 >= 1 << 20
        and is_whole(tiles)
        and tiles[0].causal
        and tiles[0].mask is None
    ):
        return triangle(length)
    return tiles


@lru_cache(maxsize=8)
def triangle(length: int) -> list[Tile]:
    """Blocks of rows that end on the diagonal of square causal maps."""
    row, key = torch.arange(_STEP).unsqueeze(1), torch.arange(1 - length, _STEP)
    mask = torch.where(key <= row, 0.0, -math.inf)
    tiles = []
    for start in range(0, length, _STEP):
        stop = min(start + _STEP, length)
        part = mask[start - stop :, -stop:]
        tiles.append(Tile(ALL, slice(start, stop), slice(0, stop), part))
    return tiles
