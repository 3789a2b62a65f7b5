"""The fused path: dot products and softmax in one call of torch's flash attention.

For every score that can be rewritten as a dot product. The call is arranged so that torch does not
fall back to its slow path silently: four dimensions, equal widths, expanded masks, `is_causal`
only where torch aligns it as this library does. A small map is two matrix products, which are
faster there (`products.py`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core.blocks import in_functorch
from regard.core.lower import dot_form, is_dot
from regard.core.mask import Grid, Mask, Window, as_mask
from regard.core.mask.algebra import Visible
from regard.core.normalize import SoftmaxForm, as_softmax, over_heads
from regard.core.request import Request, check_mask
from regard.core.score import Dot, DotForm, ScaledDot, precise
from regard.core.shapes import fits
from regard.paths.flash import as_bias
from regard.paths.layout import Layout, layout
from regard.paths.tile_attention import attend_tiles, runs_kernels
from regard.paths.tile_plan import ALL, WHOLE, Tile

CAUSAL = (Tile(ALL, ALL, ALL, causal=True),)

LEAST = 2**27
"""Multiplications from which searching for blocks to skip pays: about a millisecond."""


def unsupported_reason(request: Request) -> str | None:
    """Why torch cannot fuse this request, or None."""
    if not is_dot(request.score):
        return "the score is not a dot product"
    form = as_softmax(request.normalize)
    if form is None:
        return "the normalizer is not softmax"
    if request.dropout:
        return "dropout is not fused"
    if _learned(form.temperature) and precise(request.query.dtype) != request.query.dtype:
        return "the gradient of a temperature needs more than half precision"
    if request.bias is not None and (request.bias.requires_grad or _learned(form.temperature)):
        return "the bias needs a gradient"
    if in_functorch():
        return "torch.func or forward-mode AD is active"
    if form.sink is not None and not runs_kernels(request.query):
        return "a sink needs torch's kernels for the CPU"
    if not request.cells or not request.query.shape[-1] or not request.value.shape[-1]:
        return "there is nothing to compute"
    return None


def zeroes_hidden(request: Request) -> bool:
    """Whether the tiles themselves keep hidden NaN and inf from the result, at less cost.

    They can where they receive queries and keys as given: a projection mixes hidden values into
    its gradient first, and so does a learned temperature.
    """
    as_given = isinstance(request.score, Dot | ScaledDot) and not _learned(
        _form(request).temperature
    )
    return as_given and request.query.is_cpu and not torch.compiler.is_compiling()


def depends_on_shapes(request: Request) -> bool:
    """Whether shapes decide that `whole_tile` can replace a request, whatever its mask shows."""
    mask = request.mask
    if not is_canonical(request.leading, request.query, request.key, request.value):
        return False
    if request.query.shape[-1] != request.value.shape[-1]:
        return False
    if mask is None or (isinstance(mask, Window) and mask.square_causal(*request.size)):
        return True
    return is_small(request) and zeroes_hidden(request)


def whole_tile(mask: Mask | Tensor | None, query: Tensor, key: Tensor) -> Sequence[Tile] | None:
    """The map as one tidy tile, (B, H, M, N) by query and key; None if the mask is wider."""
    if mask is None:
        return WHOLE
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    if isinstance(mask, Window) and mask.square_causal(queries, keys):
        return CAUSAL
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        mask = Visible(mask)  # not copied: it is read below, and not again
    mask, grid = as_mask(mask), Grid(queries, keys, 2, query.device)
    check_mask(mask, grid)
    block = mask.block(slice(0, queries), slice(0, keys), grid)
    if block.dim() > 2 and not fits(block.shape[:-2], (batch, heads)):
        return None
    return (Tile(ALL, ALL, ALL, as_bias(block, query.dtype)),)


def is_small(request: Request) -> bool:
    """Whether searching for hidden blocks takes longer than computing them."""
    return request.cells * (request.query.shape[-1] + request.value.shape[-1]) < LEAST


def _form(request: Request) -> SoftmaxForm:
    form = as_softmax(request.normalize)
    assert form is not None
    return form


def _learned(temperature: float | Tensor) -> bool:
    return isinstance(temperature, Tensor) and temperature.requires_grad


def is_canonical(leading: torch.Size, *tensors: Tensor) -> bool:
    """Whether tensors are (batch, heads, length, dim) already, as torch expects them."""
    return len(leading) == 2 and all(tensor.shape[:-2] == leading for tensor in tensors)


def divided_form(request: Request) -> DotForm:
    """Queries, keys and scale of scores that are divided by the temperature."""
    query, key, scale = dot_form(request)
    temperature = _form(request).temperature
    if isinstance(temperature, Tensor):
        return (query / over_heads(temperature, query)).to(query.dtype), key, scale
    return query, key, scale / temperature


def sink_of(request: Request, fold: Layout | None) -> Tensor | None:
    """The sink of every head of every sequence, (B, H), or None."""
    sink = _form(request).sink
    if sink is None:
        return None
    sinks = over_heads(sink, request.query).expand(*request.leading, 1, 1)
    return (sinks if fold is None else fold.fold_query(sinks)).flatten(-3)


def fused(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ + bias, mask) V in one call, (..., M, Dv)."""
    query, key, scale = divided_form(request)
    value, mask, bias = request.value, request.mask, request.bias
    canonical = is_canonical(request.leading, query, key, value)
    fold = None if canonical else layout(request.leading, key, value)
    if mask is None and bias is None:
        tiles = WHOLE
    elif isinstance(mask, Window) and mask.square_causal(*request.size) and bias is None:
        tiles = CAUSAL
    else:
        tiles = (Tile(ALL, ALL, ALL, _mask(request, fold)),)
    sink = sink_of(request, fold)
    if fold is None:
        return attend_tiles(query, key, value, tiles, scale, sink)
    folded = (fold.fold_query(query), fold.fold_key(key), fold.fold_key(value))
    return fold.unfold(attend_tiles(*folded, tiles, scale, sink))


def _mask(request: Request, fold: Layout | None) -> Tensor:
    """Mask and bias as one tensor that torch can fuse: bool, or float with -inf for hidden."""
    visible = request.visible(request.rows)
    if request.bias is None:
        assert visible is not None
        block = visible
    else:
        block = request.bias.detach()
        temperature = _form(request).temperature
        if isinstance(temperature, Tensor) or temperature != 1.0:
            block = block / over_heads(temperature, block)
        if visible is not None:
            block = torch.where(visible, block, float("-inf"))
    return block if fold is None else fold.fold_mask(block)
