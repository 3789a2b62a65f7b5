"""Attention by matrix products with a softmax between them, where the map fits in the cache.

There they are faster than the flash kernel, whose blocks are made for long sequences.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.paths.tile_plan import Tile, covers
from regard.system import torch_internals

SMALL = (1 << 11, 1 << 17)
"""Cells of a whole map, all heads: below, the flash kernel starts sooner; above, it is as fast."""

TILE = 1 << 19
"""Cells of one tile without a mask, all heads, up to which products are faster."""

_DTYPES = (torch.float32, torch.float64)


def suits_whole(query: Tensor, key: Tensor, value: Tensor, tile: Tile) -> bool:
    """Whether `attend_whole` can compute the map of one tile over everything, and is faster."""
    (batch, heads, length, _), (_, groups, keys, _) = query.shape, key.shape
    return (
        SMALL[0] <= batch * heads * length * keys <= SMALL[1]
        and heads == groups
        and query.dtype in _DTYPES
        and not tile.causal
        and not torch.is_autocast_enabled("cpu")  # it would compute products in half precision
        and query.is_contiguous()
        and key.is_contiguous()
        and value.is_contiguous()
    )


def attend_whole(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """softmax(scale · Q Kᵀ + bias) V, and the weights. A query that sees nothing gets NaN.

    Args:
        query: (B, H, M, D)
        key, value: (B, H, N, D)
        bias: broadcastable to (B, H, M, N), four dimensions; -inf hides

    Returns: context (B, H, M, D), weights (B, H, M, N)
    """
    scores = torch.matmul(query, key.transpose(2, 3))
    if bias is None:
        scores.mul_(scale)
    else:
        torch.add(bias, scores, alpha=scale, out=scores)
    weights = torch.softmax(scores, -1, out=scores)
    return torch.matmul(weights, value), weights


def differentiate_whole(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, from the weights of `attend_whole`."""
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return differentiate_whole(grad, query, key, value, weights, scale)
    g, q, k, v, w = (t.flatten(0, 1) for t in (grad, query, key, value, weights))
    slopes = torch.bmm(g, v.transpose(1, 2))  # of the weights
    kernel = torch_internals.function("gradient of softmax")
    if kernel is None:
        slopes = w * (slopes - torch.linalg.vecdot(slopes, w).unsqueeze(-1))
    else:
        slopes = kernel(slopes, w, -1, w.dtype)
    dq, dk = _scaled(slopes, k, scale), _scaled(slopes.transpose(1, 2), q, scale)
    dv = torch.bmm(w.transpose(1, 2), g)
    return dq.view(query.shape), dk.view(key.shape), dv.view(value.shape)


def _scaled(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """scale · left · right."""
    unused = left.new_empty(()).expand(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(unused, left, right, beta=0, alpha=scale)


def suits_each(query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile]) -> bool:
    """Whether `attend_each` can compute these tiles and is the fastest way."""
    batch, heads = query.shape[:2]
    return (
        len(tiles) > 1
        and heads == key.shape[1]
        and query.dtype in _DTYPES
        and all(t.is_contiguous() for t in (query, key, value))
        and all(
            tile.mask is None
            and not tile.causal
            and not tile.continues
            and len(range(batch)[tile.batch]) == 1
            and _cells(tile, query, key) <= TILE
            for tile in tiles
        )
    )


def attend_each(
    query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile], scale: float
) -> Tensor:
    """softmax(scale · Q Kᵀ) V within tiles of one entry without a mask; zeros outside of them.

    Products that are written straight to the result save a copy.
    """
    batch, heads, length, _ = query.shape
    make = query.new_empty if covers(tiles, batch, length) else query.new_zeros
    output = make(query.shape)
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
