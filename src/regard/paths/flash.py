"""Torch's flash attention kernels for the CPU, applied to tiles of the map.

Nothing outside of the tiles is computed, forward or backward. The kernels hold no map, and the
gradients of all tiles are added to tensors that are allocated once: slices under autograd would
zero-fill the whole of K and V for each of them.

How the kernels behave (torch 2.13), and why the code is as it is: a size of zero ends the
process; a last stride other than 1 gives garbage; masks are float; queries and values have the
same width; a query that sees nothing gets zeros, a log-sum-exp of 0 and no gradient; gradients in
half precision take 4 to 20 times as long as in float32; `is_causal` needs a positive scale.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from regard.paths.tile_plan import ALL, WHOLE, Tile, continued, covers, is_whole, split_causal
from regard.system import torch_internals

_HALF = (torch.float16, torch.bfloat16)


def kernels() -> tuple[Callable, Callable] | None:
    """Forward and backward, or None: they are private to torch and were not tested with it."""
    return cast(Any, torch_internals.functions("flash attention"))


def run(
    query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile], scale: float
) -> tuple[Tensor, Tensor]:
    """The context (B, H, M, D) and the log-sum-exp of the scores (B, H, M); zeros outside tiles.

    Args:
        query: (B, H, M, D)
        key, value: (B, G, N, D), where H is a multiple of G
    """
    found = kernels()
    assert found is not None
    forward, _ = found
    if tiles is WHOLE:
        return forward(query, key, value, 0.0, False, scale=scale)
    tiles = split_causal(tiles, query.shape, key.shape[2])
    if is_whole(tiles):
        tile = tiles[0]
        mask = None if tile.mask is None else as_bias(tile.mask, query.dtype)
        return forward(query, key, value, 0.0, tile.causal, attn_mask=mask, scale=scale)
    batch, heads, length, width = query.shape
    make = query.new_empty if covers(tiles, batch, length) else query.new_zeros
    if query.stride(1) < query.stride(2):  # heads side by side in memory, as a projection has them
        out = make((batch, length, heads, width)).transpose(1, 2)
    else:
        out = make((batch, heads, length, width))
    precise = torch.float32 if query.dtype in _HALF else query.dtype
    lse = make((batch, length, heads), dtype=precise).transpose(1, 2)
    biases = _Biases(query.dtype)
    for group in continued(tiles, causal=False):
        tile = group[0]
        q, k, v, mask = _cut(query, key, value, group)
        part, norm = forward(
            q, k, v, 0.0, tile.causal, attn_mask=biases(mask), scale=scale
        )  # (batch, H, rows, D), (batch, H, rows)
        tile_out, tile_lse = out[tile.batch, :, tile.rows], lse[tile.batch, :, tile.rows]
        if tile.continues:
            total = torch.logaddexp(tile_lse, norm)
            part.mul_((norm - total).exp_().to(part.dtype).unsqueeze(-1))
            part.addcmul_(tile_out, (tile_lse - total).exp_().to(part.dtype).unsqueeze(-1))
            norm = total
        tile_out.copy_(part)
        tile_lse.copy_(norm)
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

    Given the log-sum-exp of whole rows, the gradients of their tiles only need to be added.
    """
    found, dtype = kernels(), query.dtype
    assert found is not None
    _, backward = found
    if tiles is WHOLE and dtype not in _HALF:
        return backward(grad, query, key, value, out, lse, 0.0, False, scale=scale)
    if dtype in _HALF:
        tensors = [t.float() for t in (grad, query, key, value, out)]
        return tuple(t.to(dtype) for t in differentiate(*tensors, lse, tiles, scale))  # type: ignore
    tiles = split_causal(tiles, query.shape, key.shape[2])
    if is_whole(tiles):
        tile = tiles[0]
        mask = None if tile.mask is None else as_bias(tile.mask, dtype)
        return backward(
            grad, query, key, value, out, lse, 0.0, tile.causal, attn_mask=mask, scale=scale
        )
    batch, heads, length, width = query.shape
    groups, keys = key.shape[1:3]

    def new(length: int, heads: int, zero: bool = True) -> Tensor:  # laid out as the kernel does
        make = query.new_zeros if zero else query.new_empty
        return make((batch, length, heads, width)).transpose(1, 2)

    dq = new(length, heads, not covers(tiles, batch, length))
    shared: Sequence[Tensor] = ()  # dk, dv
    touched: set[int] = set()  # entries of the batch whose dk and dv are not zero
    more = False
    biases = _Biases(dtype)
    for group in reversed(continued(tiles, causal=False)):  # of causal tiles the last has all keys
        tile = group[0]
        q, k, v, mask = _cut(query, key, value, group)
        rows = (tile.batch, ALL, tile.rows)
        own, *parts = backward(
            grad[rows], q, k, v, out[rows], lse[rows], 0.0, tile.causal,
            attn_mask=biases(mask), scale=scale,
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
                start = 0
                for tile in group:
                    target = whole[tile.batch, :, tile.keys]
                    size = target.shape[2]
                    _put(target, part.narrow(2, start, size), add=add)
                    start += size
        touched.update(entries)
    dk, dv = shared or (new(keys, groups), new(keys, groups))
    return dq, dk, dv


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask in the form that the kernels take: float, 4-D, not materialized where broadcast.

    >>> as_bias(torch.tensor([True, False]), torch.float32)
    tensor([[[[0., -inf]]]])
    """
    if mask.dim() != 4:
        mask = mask[(None,) * (4 - mask.dim())]
    if mask.dtype == dtype or (mask.dtype == torch.float32 and dtype in _HALF):
        return mask
    strides = mask.stride()
    if 0 in strides:
        for dim, stride in enumerate(strides):
            if stride == 0:
                mask = mask.narrow(dim, 0, min(mask.shape[dim], 1))
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.where(mask, *_shown_and_hidden(dtype))


_constants: dict[torch.dtype, tuple[Tensor, Tensor]] = {}


def _shown_and_hidden(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """0 and -inf as tensors; kept only if they are real ones, not made under a mode."""
    pair = _constants.get(dtype)
    if pair is None:
        zero = torch.zeros((), dtype=dtype, device="cpu")
        pair = zero, torch.full_like(zero, -math.inf)
        if type(zero) is Tensor and not zero.is_inference():
            _constants[dtype] = pair
    return pair


class _Biases:
    """Converts masks with `as_bias`; one that consecutive tiles share is converted once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.last: tuple[Tensor, Tensor] | None = None

    def __call__(self, mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        if self.last is None or self.last[0] is not mask:
            self.last = mask, as_bias(mask, self.dtype)
        return self.last[1]


def _cut(
    query: Tensor, key: Tensor, value: Tensor, group: Sequence[Tile]
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The queries, keys, values and mask of tiles with the same rows; the keys are joined."""
    tile = group[0]
    places = [(tile.batch, ALL, tile.keys) for tile in group]
    q, mask = query[tile.batch, :, tile.rows], tile.mask
    if len(group) == 1:
        return q, key[places[0]], value[places[0]], mask
    if mask is not None:
        mask = torch.cat([tile.mask for tile in group if tile.mask is not None], -1)
    k, v = (torch.cat([t[place] for place in places], 2) for t in (key, value))
    return q, k, v, mask


def _put(target: Tensor, part: Tensor, *, add: bool) -> None:
    if add:
        target.add_(part)
    else:
        target.copy_(part)
