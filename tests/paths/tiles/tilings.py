"""Tiles of many kinds, and the formula for their result, written out."""

import math

import torch
from torch import Tensor

from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import Tile

ALL = slice(None)
B, H, G, M, N, D, E = 2, 6, 3, 11, 13, 5, 7
SCALE = 0.37
BAD = [math.nan, math.inf, -math.inf]


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)


def inputs(
    batch: int = B, heads: int = H, groups: int = G, queries: int = M, keys: int = N,
    width: int = D, out_width: int = E, dtype: torch.dtype = torch.float64,
) -> list[Tensor]:  # fmt: skip
    shapes = (
        (batch, heads, queries, width),
        (batch, groups, keys, width),
        (batch, groups, keys, out_width),
    )
    return [random(*s, dtype=dtype, seed=i).requires_grad_() for i, s in enumerate(shapes)]


def shown_by(tiles: list[Tile], shape: tuple[int, ...]) -> Tensor:
    """What tiles show, as one tensor to add to the scores (B, H, M, N)."""
    whole = torch.full(shape, -math.inf, dtype=torch.float64)
    for own in tiles:
        place = whole[own.batch, :, own.rows, own.keys]
        part = torch.zeros(place.shape[-2:], dtype=torch.float64)
        if own.mask is not None and own.mask.dtype == torch.bool:
            part = part.masked_fill(~own.mask, -math.inf)
        elif own.mask is not None:
            part = part + own.mask
        if own.causal:
            part = part.masked_fill(~torch.ones(place.shape[-2:]).tril().bool(), -math.inf)
        assert bool((place == -math.inf).all()), "two tiles share a cell"
        whole[own.batch, :, own.rows, own.keys] = part.expand(place.shape)
    return whole


def written_out(q: Tensor, k: Tensor, v: Tensor, added: Tensor, scale: float) -> Tensor:
    """softmax(scale · Q Kᵀ + added) V with zeros for queries that see nothing."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = q @ k.transpose(-1, -2) * scale + added
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.where(blind, 0.0, scores).softmax(-1)
    return torch.where(blind, 0.0, weights) @ v


def assert_same(tiles: list[Tile], tensors: list[Tensor], scale: float = SCALE) -> Tensor:
    """Tiles give what the formula gives, in value and gradient, to 1e-9."""
    q, k, v = tensors
    added = shown_by(tiles, (*q.shape[:3], k.shape[2]))
    truth = written_out(q, k, v, added, scale)
    found = attend_tiles(q, k, v, tiles, scale)
    assert found.shape == truth.shape
    upstream = random(*truth.shape, seed=9)
    expected = torch.autograd.grad(truth, tensors, upstream)
    gradients = torch.autograd.grad(found, tensors, upstream)
    for one, other in zip((found, *gradients), (truth, *expected), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(attend_tiles(q, k, v, tiles, scale), found, rtol=0, atol=0)
    return found


def bool_mask(*shape: int) -> Tensor:
    return random(*shape, seed=4) > -0.3


def blind_mask() -> Tensor:
    """A mask with a row that sees nothing and a key that is hidden from all."""
    mask = bool_mask(1, 1, M, N)
    mask[..., 3, :] = False
    mask[..., 5] = False
    return mask


TILINGS: dict[str, list[Tile]] = {
    "one without a mask": [Tile(ALL, ALL, ALL)],
    "one with bounds": [Tile(slice(0, B), slice(0, M), slice(0, N))],
    "one with a mask of keys": [Tile(ALL, ALL, ALL, bool_mask(N))],
    "one with a mask of rows and keys": [Tile(ALL, ALL, ALL, bool_mask(M, N))],
    "one with a mask of heads": [Tile(ALL, ALL, ALL, bool_mask(H, M, N))],
    "one with a mask of the batch": [Tile(ALL, ALL, ALL, bool_mask(B, 1, 1, N))],
    "one with an expanded mask": [Tile(ALL, ALL, ALL, bool_mask(M, N).expand(B, H, M, N))],
    "one with a blind row": [Tile(ALL, ALL, ALL, blind_mask())],
    "one with a bias": [Tile(ALL, ALL, ALL, random(1, H, M, N))],
    "one with a bias in another precision": [Tile(ALL, ALL, ALL, random(M, N).bfloat16().float())],
    "one with a bias that hides": [
        Tile(ALL, ALL, ALL, random(M, N).masked_fill(~blind_mask(), -math.inf))
    ],
    "a causal square": [Tile(ALL, ALL, slice(1, 1 + M), causal=True)],
    "a causal square with a mask": [Tile(ALL, ALL, slice(1, 1 + M), bool_mask(M, M), True)],
    "some rows": [Tile(ALL, slice(2, 5), ALL)],
    "rows apart": [Tile(ALL, slice(1, 4), slice(0, 7)), Tile(ALL, slice(6, M), slice(5, N))],
    "keys apart": [Tile(ALL, slice(0, 5), slice(0, 2)), Tile(ALL, slice(5, M), slice(9, N))],
    "entries apart": [Tile(slice(0, 1), ALL, slice(0, 3)), Tile(slice(1, 2), ALL, slice(0, 8))],
    "one entry": [Tile(slice(1, 2), slice(0, 7), slice(2, 11), bool_mask(1, H, 7, 9))],
    "empty tiles among others": [
        Tile(ALL, slice(3, 3), ALL),
        Tile(ALL, slice(0, 4), ALL),
        Tile(ALL, slice(4, 8), slice(7, 7)),
    ],
    "a rectangle and a triangle": [
        Tile(ALL, ALL, slice(0, 2)), Tile(ALL, ALL, slice(2, N), causal=True, continues=True),
    ],
    "three that continue": [
        Tile(ALL, slice(0, 6), slice(0, 2)),
        Tile(ALL, slice(0, 6), slice(5, 7), continues=True),
        Tile(ALL, slice(0, 6), slice(7, N), causal=True, continues=True),
        Tile(ALL, slice(6, M), slice(0, 4)),
    ],
    "none": [],
}  # fmt: skip
