"""Small tiles by plain matrix products, where no gradient is asked for.

A map of a few hundred rows and keys fits in the cache. Then two products with a softmax between
them, which write where the result belongs, are faster than the flash kernel and a copy.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.paths.pages import room
from regard.paths.tile import Tile, covers

CELLS = 1 << 19  # of one tile, all heads


def suits(query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile]) -> bool:
    """Whether `multiply` can compute these tiles, and is the fastest way."""
    batch, heads = query.shape[:2]
    return (
        len(tiles) > 1
        and heads == key.shape[1]
        and query.dtype in (torch.float32, torch.float64)
        and all(t.is_contiguous() for t in (query, key, value))
        and all(
            tile.mask is None
            and not tile.causal
            and not tile.continues
            and len(range(batch)[tile.batch]) == 1
            and _cells(tile, query, key) <= CELLS
            for tile in tiles
        )
    )


def multiply(
    query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile], scale: float
) -> Tensor:
    """softmax(scale · Q Kᵀ) V within tiles of one entry without a mask, (B, H, M, D)."""
    batch, heads, length, _ = query.shape
    output = room(tuple(query.shape), query.dtype, zero=not covers(tiles, batch, length))
    cells = query.new_empty(max(_cells(tile, query, key) for tile in tiles))
    for tile in tiles:
        entry = range(batch)[tile.batch][0]
        q, out = query[entry, :, tile.rows], output[entry, :, tile.rows]  # (H, rows, D)
        k, v = key[entry, :, tile.keys], value[entry, :, tile.keys]
        shape = (heads, q.shape[1], k.shape[1])
        scores = cells[: shape[0] * shape[1] * shape[2]].view(shape)
        torch.baddbmm(scores, q, k.transpose(1, 2), beta=0, alpha=scale, out=scores)
        torch.softmax(scores, -1, out=scores)
        torch.bmm(scores, v, out=out)
    return output


def _cells(tile: Tile, query: Tensor, key: Tensor) -> int:
    heads, length = query.shape[1:3]
    return heads * len(range(length)[tile.rows]) * len(range(key.shape[2])[tile.keys])
