"""Attention within tiles of the map, as a function that is differentiable to any order."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from regard.core.blocks import version_check
from regard.paths import flash, products
from regard.paths.formula import sdpa_fallback, second_gradients_in_tiles, visible_only
from regard.paths.tile_plan import ALL, WHOLE, Tile, is_whole, pad_keys
from regard.system import torch_internals


def attend_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tiles: Sequence[Tile],
    scale: float,
    sink: Tensor | None = None,
) -> Tensor:
    """softmax(scale · Q Kᵀ) V within tiles; queries in no tile get zeros.

    A query that sees nothing gets zeros and no gradient. NaN and inf in keys and values that are
    hidden from every query, and in queries that see nothing, reach neither output nor gradients.

    >>> ones = torch.ones(1, 1, 4, 2)
    >>> tiles = [Tile(slice(None), slice(0, 2), slice(1, 3)), Tile(slice(None), slice(3, 4), ALL)]
    >>> attend_tiles(ones, ones, ones, tiles, scale=1.0)[0, 0, :, 0]
    tensor([1., 1., 0., 1.])

    Args:
        query: (B, H, M, D)
        key: (B, G, N, D), where H is a multiple of G (grouped-query attention)
        value: (B, G, N, E)
        tiles: with masks broadcastable to (batch, H, rows, keys); `WHOLE` if nothing is empty
        scale: of the dot products
        sink: one more score in the softmax of every row, which has no value, (B, H); only where
            `runs_kernels`

    Returns: context, (B, H, M, E)
    """
    width, out_width = query.shape[-1], value.shape[-1]
    if width < out_width:
        query, key = (F.pad(t, (0, out_width - width)) for t in (query, key))
    elif width > out_width:
        value = F.pad(value, (0, width - out_width))
    if scale <= 0:  # the causal kernel writes -inf before it multiplies
        query, scale = query * scale, 1.0
    if tiles is not WHOLE:
        tiles = _tidy(tiles, query, key)
    output = attend_tidy(query, key, value, tiles, scale, sink)
    return output[..., :out_width] if width > out_width else output


def attend_tidy(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tiles: Sequence[Tile],
    scale: float,
    sink: Tensor | None = None,
) -> Tensor:
    """`attend_tiles` for equal widths, a positive scale and tiles that are not empty.

    A tile over the whole map is written with slice(None). Small calls notice every check.
    """
    query, key, value = _rows(query), _rows(key), _rows(value)
    if not query.is_cpu or torch.compiler.is_compiling() or _is_traced(query):
        assert sink is None
        return sdpa_fallback(query, key, value, tiles, scale)
    tracked = torch.is_grad_enabled() and (
        query.requires_grad
        or key.requires_grad
        or value.requires_grad
        or (sink is not None and sink.requires_grad)
    )
    if tiles is WHOLE:
        pass
    elif is_whole(tiles):
        tile = tiles[0]
        if tile.mask is not None and tile.mask.dtype == torch.bool:  # once, for both passes
            tiles = (tile._replace(mask=flash.as_bias(tile.mask, query.dtype)),)
    else:
        if not tracked and sink is None and products.suits_each(query, key, value, tiles):
            return products.attend_each(query, key, value, tiles, scale)
        if not any(tile.continues for tile in tiles):
            tiles = [pad_keys(tile, key.shape[2]) for tile in tiles]
    if tracked:
        return _Attend.apply(query, key, value, sink, tiles, scale)
    return _context(query, key, value, sink, tiles, scale)[0]


def runs_kernels(tensor: Tensor) -> bool:
    """Whether tensors like this go to torch's kernels for the CPU."""
    return (
        tensor.is_cpu
        and not torch.compiler.is_compiling()
        and not _is_traced(tensor)
        and flash.kernels() is not None
    )


def _is_traced(tensor: Tensor) -> bool:
    """Whether a mode such as FakeTensorMode or make_fx is active: values cannot be inspected."""
    return type(tensor) not in (Tensor, Parameter) or torch_internals.any_dispatch_mode()


class _Attend(torch.autograd.Function):
    """The kernels, with their own backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sink: Tensor | None,
        tiles: Sequence[Tile],
        scale: float,
    ) -> Tensor:
        output, kept = _context(query, key, value, sink, tiles, scale)
        ctx.save_for_backward(query, key, value, sink, output, kept)
        ctx.tiles, ctx.scale = tiles, scale
        masks = [("bias", tile.mask) for tile in tiles if tile.mask is not None]
        ctx.check = version_check(masks, "its gradient cannot be computed")
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.check()
        gradients: Any = _Gradients.apply if torch.is_grad_enabled() else _gradients
        return *gradients(grad, *ctx.saved_tensors, ctx.tiles, ctx.scale), None, None


class _Gradients(torch.autograd.Function):
    """The backward pass as a function, whose derivative is that of the plain formula."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        grad, query, key, value, sink, _, _, ctx.tiles, ctx.scale = args
        ctx.save_for_backward(grad, query, key, value, sink)
        return _gradients(*args)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        found = second_gradients_in_tiles(upstream, ctx.saved_tensors, ctx.tiles, ctx.scale)
        return *found, None, None, None, None


def _context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sink: Tensor | None,
    tiles: Sequence[Tile],
    scale: float,
) -> tuple[Tensor, Tensor | None]:
    """The output, without hidden NaN and inf, and what its gradient needs.

    That is the log-sum-exp (B, H, M) of the kernels, the weights (B, H, M, N) of a small map, or
    nothing if torch has no kernels.
    """
    if flash.kernels() is None:
        return sdpa_fallback(*visible_only(query, key, value, tiles), tiles, scale), None
    if sink is None and is_whole(tiles) and products.suits_whole(query, key, value, tiles[0]):
        mask = tiles[0].mask
        bias = None if mask is None else flash.as_bias(mask, query.dtype)
        output, weights = products.attend_whole(query, key, value, bias, scale)
        if _is_clean(output, weights, tiles):  # if not, some query may see nothing
            return output, weights
    output, lse = flash.run(query, key, value, tiles, scale)
    if tiles is not WHOLE and not _is_clean(output, lse, tiles):
        output, lse = flash.run(*visible_only(query, key, value, tiles), tiles, scale)
    return (output, lse) if sink is None else _drained(output, lse, sink)


def _drained(output: Tensor, lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp with one more score in each row, which has no value.

    The rows of the output shrink by e^(lse − total). Given the total, the kernels' backward pass
    is right as it is: what the sink takes changes the sums of the rows only.
    """
    total = torch.logaddexp(lse, sink.unsqueeze(-1))
    return output.mul_((lse - total).exp_().to(output.dtype).unsqueeze(-1)), total


def _gradients(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sink: Tensor | None,
    output: Tensor,
    kept: Tensor | None,
    tiles: Sequence[Tile],
    scale: float,
) -> tuple[Tensor | None, ...]:
    """The gradients of query, key, value and sink, without hidden NaN and inf.

    Args:
        output, kept: of `_context`
    """
    if kept is None:  # without the kernels
        if not tiles:
            return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value), None
        with torch.enable_grad():
            q, k, v = (t.detach().requires_grad_() for t in visible_only(query, key, value, tiles))
            parts = torch.autograd.grad(sdpa_fallback(q, k, v, tiles, scale), (q, k, v), grad)
            return *parts, None

    def differentiate(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if kept.dim() == 4:
            return products.differentiate_whole(grad, query, key, value, kept, scale)
        return flash.differentiate(grad, query, key, value, output, kept, tiles, scale)

    found = differentiate(query, key, value)
    # large hidden numbers may spoil single rows: their products overflow with some rows only
    masked = tiles is not WHOLE and any(tile.mask is not None for tile in tiles)
    if masked and not (_finite(found[0]) and _finite(found[1])):
        found = differentiate(*visible_only(query, key, value, tiles))
    if sink is None:
        return *found, None
    share = (sink.unsqueeze(-1) - kept).exp_()  # of the sink in each row, (B, H, M)
    slope = torch.linalg.vecdot(grad.to(share.dtype), output.to(share.dtype))
    return *found, -torch.linalg.vecdot(share, slope).to(sink.dtype)


def _is_clean(output: Tensor, lse: Tensor, tiles: Sequence[Tile]) -> bool:
    """Whether no hidden NaN or inf reached the result."""
    if is_whole(tiles):
        return tiles[0].mask is None or _finite(output)
    rows = [tile.rows for tile in tiles if tile.mask is not None]
    # one sum is faster, but over many tiles only the first row of each is needed
    return not rows or (_finite(lse) and _finite(_first(output, rows)))


def _first(tensor: Tensor, slices: list[slice]) -> Tensor:
    """The first row of each slice: a hidden NaN spoils all rows of its tile or none."""
    rows = sorted({part.start or 0 for part in slices})
    return tensor[:, :, rows[0] : rows[0] + 1] if len(rows) == 1 else tensor[:, :, rows]


def _finite(tensor: Tensor) -> bool:
    return math.isfinite(tensor.sum(dtype=torch.float32))


def _rows(tensor: Tensor) -> Tensor:
    """The tensor, copied if the kernels cannot read its layout in memory."""
    if tensor.is_contiguous():
        return tensor
    length, width = tensor.shape[-2:]
    apart = tensor.stride(-1) != 1 and width > 1
    overlapping = tensor.stride(-2) < width and length > 1
    return tensor.contiguous() if apart or overlapping else tensor


def _tidy(tiles: Sequence[Tile], query: Tensor, key: Tensor) -> Sequence[Tile]:
    """The tiles without empty ones; one that covers everything is written with slice(None)."""
    (batch, heads, length), keys = query.shape[:3], key.shape[2]
    if not batch * heads * length * keys:
        return ()
    if len(tiles) == 1:
        tile = tiles[0]
        if (
            tile.rows in (ALL, slice(0, length))
            and tile.keys in (ALL, slice(0, keys))
            and tile.batch in (ALL, slice(0, batch))
        ):
            mask, causal = tile.mask, tile.causal
            return (Tile(ALL, ALL, ALL, mask, causal),) if causal or mask is not None else WHOLE
    entries, rows, columns = range(batch), range(length), range(keys)
    return [t for t in tiles if entries[t.batch] and rows[t.rows] and columns[t.keys]]
