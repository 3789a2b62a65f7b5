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
from functools import lru_cache

import torch
from torch import Tensor

from regard.paths.pages import room
from regard.paths.tile import ALL, WHOLE, Tile, covers, in_blocks, is_whole

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

_HALF = (torch.float16, torch.bfloat16)


def run(
    query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile], scale: float
) -> tuple[Tensor, Tensor]:
    """The context (B, H, M, D) and the log-sum-exp of the scores (B, H, M); zero in no tile.

    Args:
        query: (B, H, M, D)
        key, value: (B, G, N, D), where H is a multiple of G
    """
    if tiles is WHOLE:
        return _forward(query, key, value, 0.0, False, scale=scale)
    tiles = in_blocks(tiles, query.shape, key.shape[2])
    if is_whole(tiles):
        tile = tiles[0]
        mask = None if tile.mask is None else additive(tile.mask, query.dtype)
        return _forward(query, key, value, 0.0, tile.causal, attn_mask=mask, scale=scale)
    batch, heads, length, width = query.shape
    zero = not covers(tiles, batch, length)
    if query.stride(1) < query.stride(2):  # heads side by side in memory, as a projection has them
        out = room((batch, length, heads, width), query.dtype, zero=zero).transpose(1, 2)
    else:
        out = room((batch, heads, length, width), query.dtype, zero=zero)
    precise = torch.float32 if query.dtype in _HALF else query.dtype
    lse = room((batch, length, heads), precise, zero=zero).transpose(1, 2)
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
    if tiles is WHOLE and dtype not in _HALF:
        return _backward(grad, query, key, value, out, lse, 0.0, False, scale=scale)
    if dtype in _HALF:
        tensors = [t.float() for t in (grad, query, key, value, out)]
        return tuple(t.to(dtype) for t in differentiate(*tensors, lse, tiles, scale))  # type: ignore
    tiles = in_blocks(tiles, query.shape, key.shape[2])
    if is_whole(tiles):
        tile = tiles[0]
        mask = None if tile.mask is None else additive(tile.mask, dtype)
        return _backward(
            grad, query, key, value, out, lse, 0.0, tile.causal, attn_mask=mask, scale=scale
        )
    batch, heads, length, width = query.shape
    groups, keys = key.shape[1:3]

    def new(length: int, heads: int, zero: bool = True) -> Tensor:  # laid out as the kernel does
        return room((batch, length, heads, width), dtype, zero=zero).transpose(1, 2)

    dq = new(length, heads, not covers(tiles, batch, length))
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
            shared = shared or (new(keys, groups), new(keys, groups))
            add = not touched.isdisjoint(entries)
            for whole, part in zip(shared, parts, strict=True):
                _put(whole[columns], part, add=add)
        touched.update(entries)
    dk, dv = shared or (new(keys, groups), new(keys, groups))
    return dq, dk, dv


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as the kernels want it: float, 4-D, not written out where it is broadcast.

    >>> additive(torch.tensor([True, False]), torch.float32)
    tensor([[[[0., -inf]]]])
    """
    if mask.dim() != 4:
        mask = mask[(None,) * (4 - mask.dim())]
    if mask.dtype == dtype or (mask.dtype == torch.float32 and dtype in _HALF):
        return mask
    for dim in range(4):
        if mask.stride(dim) == 0:
            mask = mask.narrow(dim, 0, min(mask.shape[dim], 1))
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.where(mask, *_added(dtype))


@lru_cache
def _added(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What a mask adds to scores where it shows and where it hides."""
    return torch.zeros((), dtype=dtype), torch.full((), -math.inf, dtype=dtype)


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
