"""Torch's flash kernels for the CPU, over the rectangles of a map that somebody sees.

What is in no rectangle is never computed, forward or backward. The kernels hold no map, and the
gradients of all rectangles add into tensors that are allocated once: slices under autograd would
fill the whole of K and V for each of them.

How the kernels behave (torch 2.13), and why the code is as it is: a size of zero ends the
process; a last stride other than 1 gives garbage; masks are float; queries and values have one
width; a query that sees nothing gets zeros, a log-sum-exp of 0 and no gradient; gradients of half
precision take 4 to 20 times as long as those of float32; `is_causal` needs a positive scale.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

ALL = slice(None)
_HALF = (torch.float16, torch.bfloat16)
_STEP, _LONG, _CELLS = 64, 768, 1 << 20  # where cutting a triangle pays
_MAPPED = 1 << 25  # bytes from which malloc fetches fresh pages from the system every time


class Tile(NamedTuple):
    """A rectangle of the map in which somebody sees something."""

    batch: slice
    rows: slice  # queries; each belongs to one tile, or to one and the tiles that continue it
    keys: slice
    mask: Tensor | None = None  # bool, True = may attend; or float to add, where -inf hides
    causal: bool = False  # row i of the tile sees its keys 0 … i
    continues: bool = False  # more keys for the rows of the tile before; neither has a mask


def is_whole(tiles: Sequence[Tile]) -> bool:
    """Whether one tile, written with slice(None), covers the map."""
    return len(tiles) == 1 and tiles[0][:3] == (ALL, ALL, ALL)


def triangle(maps: int, length: int) -> list[Tile]:
    """The tiles of square causal maps.

    The kernel computes 512 keys at a time, hidden or not. So a short triangle is cut in blocks of
    rows that end on the diagonal.
    """
    if not _STEP < length < _LONG or maps * length * length < _CELLS:
        return [Tile(ALL, ALL, ALL, causal=True)]
    hidden = torch.full((_STEP, _STEP), -math.inf).triu(1)
    mask = torch.cat([torch.zeros(_STEP, length - 1), hidden], 1)  # each row sees one key more
    tiles = []
    for start in range(0, length, _STEP):
        stop = min(start + _STEP, length)
        part = mask[start - stop :, -stop:]
        tiles.append(Tile(ALL, slice(start, stop), slice(0, stop), part))
    return tiles


def run(
    query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile], scale: float
) -> tuple[Tensor, Tensor]:
    """The context (B, H, M, D) and the log-sum-exp of the scores (B, H, M); zero in no tile.

    Args:
        query: (B, H, M, D)
        key, value: (B, G, N, D), where H is a multiple of G
    """
    if is_whole(tiles):
        tile = tiles[0]
        mask = None if tile.mask is None else additive(tile.mask, query.dtype)
        return _forward(query, key, value, 0.0, tile.causal, attn_mask=mask, scale=scale)
    batch, heads, length, width = query.shape
    zero = not _covers(tiles, batch, length)
    if query.stride(1) < query.stride(2):  # heads side by side in memory, as a projection has them
        out = _room((batch, length, heads, width), query.dtype, zero).transpose(1, 2)
    else:
        out = _room((batch, heads, length, width), query.dtype, zero)
    precise = torch.float32 if query.dtype in _HALF else query.dtype
    lse = _room((batch, length, heads), precise, zero).transpose(1, 2)
    masks = _Masks(query.dtype)
    for tile in tiles:
        q, k, v = _cut(query, key, value, tile)
        part, norm = _forward(
            q, k, v, 0.0, tile.causal, attn_mask=masks(tile.mask), scale=scale
        )  # (batch, H, rows, D), (batch, H, rows)
        some, its = out[tile.batch, :, tile.rows], lse[tile.batch, :, tile.rows]
        if tile.continues:
            total = torch.logaddexp(its, norm)
            part.mul_((norm - total).exp_().to(part.dtype).unsqueeze(-1))
            part.addcmul_(some, (its - total).exp_().to(part.dtype).unsqueeze(-1))
            norm = total
        some.copy_(part)
        its.copy_(norm)
    return out, lse


def differentiate(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    tiles: Sequence[Tile],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, from what `run` returned.

    With the log-sum-exp of a whole row each of its tiles gives its own share of the gradient, so
    shares only add up.
    """
    dtype = query.dtype
    if dtype in _HALF:
        tensors = [t.float() for t in (grad, query, key, value, out)]
        return tuple(t.to(dtype) for t in differentiate(*tensors, lse, tiles, scale))  # type: ignore
    if is_whole(tiles):
        tile = tiles[0]
        mask = None if tile.mask is None else additive(tile.mask, dtype)
        return _backward(
            grad, query, key, value, out, lse, 0.0, tile.causal, attn_mask=mask, scale=scale
        )
    batch, heads, length, width = query.shape
    groups, keys = key.shape[1:3]

    def room(length: int, heads: int, zero: bool) -> Tensor:  # laid out as the kernel does
        return _room((batch, length, heads, width), dtype, zero).transpose(1, 2)

    dq = room(length, heads, not _covers(tiles, batch, length))
    shared: Sequence[Tensor] = ()  # dk, dv
    touched: set[int] = set()  # entries of the batch to which dk and dv hold something
    more = False
    masks = _Masks(dtype)
    for tile in reversed(tiles):  # of causal tiles the last has all keys
        q, k, v = _cut(query, key, value, tile)
        rows, columns = (tile.batch, ALL, tile.rows), (tile.batch, ALL, tile.keys)
        own, *parts = _backward(
            grad[rows], q, k, v, out[rows], lse[rows], 0.0, tile.causal,
            attn_mask=masks(tile.mask), scale=scale,
        )  # fmt: skip
        _put(dq[rows], own, add=more)
        more = tile.continues
        entries = range(batch)[tile.batch]
        if not shared and parts[0].shape == key.shape:
            shared = parts
        else:
            shared = shared or (room(keys, groups, True), room(keys, groups, True))
            add = not touched.isdisjoint(entries)
            for whole, part in zip(shared, parts, strict=True):
                _put(whole[columns], part, add=add)
        touched.update(entries)
    dk, dv = shared or (room(keys, groups, True), room(keys, groups, True))
    return dq, dk, dv


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as the kernels want it: float, 4-D, and a size of 1 where it is broadcast.

    >>> additive(torch.tensor([True, False]), torch.float32)
    tensor([[[[0., -inf]]]])
    """
    mask = mask[(None,) * (4 - mask.dim())]
    for dim in range(4):
        if mask.stride(dim) == 0:
            mask = mask.narrow(dim, 0, min(mask.shape[dim], 1))
    if mask.dtype != torch.bool:
        exact = mask.dtype == torch.float32 and dtype in _HALF
        return mask if exact else mask.to(dtype)
    shown, hidden = torch.zeros((), dtype=dtype), torch.full((), -math.inf, dtype=dtype)
    return torch.where(mask, shown, hidden)


class _Masks:
    """Float masks; one that many tiles share is converted once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.last: tuple[Tensor, Tensor] | None = None

    def __call__(self, mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        if self.last is None or self.last[0] is not mask:
            self.last = mask, additive(mask, self.dtype)
        return self.last[1]


def _cut(query: Tensor, key: Tensor, value: Tensor, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
    keys = (tile.batch, ALL, tile.keys)
    return query[tile.batch, :, tile.rows], key[keys], value[keys]


def _put(target: Tensor, part: Tensor, *, add: bool) -> None:
    if add:
        target.add_(part)
    else:
        target.copy_(part)


def _covers(tiles: Sequence[Tile], batch: int, length: int) -> bool:
    """Whether every query is in some tile."""
    sizes = (
        len(range(batch)[tile.batch]) * len(range(length)[tile.rows])
        for tile in tiles
        if not tile.continues
    )
    return sum(sizes) == batch * length


def _room(shape: tuple[int, ...], dtype: torch.dtype, zero: bool) -> Tensor:
    """An empty or zero tensor; a large one on huge pages, which numpy asks the system for.

    Fetching the pages of a large tensor one by one costs as much as a fifth of the attention.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _MAPPED:
        return torch.zeros(shape, dtype=dtype) if zero else torch.empty(shape, dtype=dtype)
    memory = np.zeros(size, np.uint8) if zero else np.empty(size, np.uint8)
    return torch.from_numpy(memory).view(dtype).view(shape)
