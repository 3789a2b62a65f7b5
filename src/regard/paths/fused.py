"""The fused path: dot products and softmax in one call of torch's flash attention.

For every score that can be rewritten as a dot product. The call is arranged so that torch does not
fall back to its slow path silently: four dimensions, equal widths, expanded masks, `is_causal`
only where torch aligns it as this library does.
"""

import torch
from torch import Tensor

from regard.core.blocks import in_functorch
from regard.core.lower import dot_form, is_dot
from regard.core.mask import Window
from regard.core.normalize import softmax
from regard.core.request import Request
from regard.core.score import Dot, ScaledDot
from regard.paths.layout import Layout, layout
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import ALL, WHOLE, Tile

CAUSAL = (Tile(ALL, ALL, ALL, causal=True),)


def unsupported_reason(request: Request) -> str | None:
    """Why torch cannot fuse this request, or None."""
    if not is_dot(request.score):
        return "the score is not a dot product"
    if request.normalize is not softmax:
        return "the normalizer is not softmax"
    if request.dropout:
        return "dropout is not fused"
    if request.bias is not None and request.bias.requires_grad:
        return "the bias needs a gradient"
    if in_functorch():
        return "torch.func or forward-mode AD is active"
    if not request.cells or not request.query.shape[-1] or not request.value.shape[-1]:
        return "there is nothing to compute"
    return None


def zeroes_hidden(request: Request) -> bool:
    """Whether the tiles themselves keep hidden NaN and inf from the result, at less cost.

    They can where they receive queries and keys as given: a projection mixes hidden values into
    its gradient first.
    """
    as_given = isinstance(request.score, Dot | ScaledDot)
    return as_given and request.query.is_cpu and not torch.compiler.is_compiling()


def is_canonical(leading: torch.Size, *tensors: Tensor) -> bool:
    """Whether tensors are (batch, heads, length, dim) already, as torch expects them."""
    return len(leading) == 2 and all(tensor.shape[:-2] == leading for tensor in tensors)


def fused(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ + bias, mask) V in one call, (..., M, Dv)."""
    query, key, scale = dot_form(request)
    value, mask, bias = request.value, request.mask, request.bias
    canonical = is_canonical(request.leading, query, key, value)
    fold = None if canonical else layout(request.leading, key, value)
    if mask is None and bias is None:
        tiles = WHOLE
    elif isinstance(mask, Window) and mask.square_causal(*request.size) and bias is None:
        tiles = CAUSAL
    else:
        tiles = (Tile(ALL, ALL, ALL, _mask(request, fold)),)
    if fold is None:
        return attend_tiles(query, key, value, tiles, scale)
    folded = (fold.fold_query(query), fold.fold_key(key), fold.fold_key(value))
    return fold.unfold(attend_tiles(*folded, tiles, scale))


def _mask(request: Request, fold: Layout | None) -> Tensor:
    """Mask and bias as one tensor that torch can fuse: bool, or float with -inf for hidden."""
    visible = request.visible(request.rows)
    if request.bias is None:
        assert visible is not None
        block = visible
    else:
        block = request.bias.detach()
        if visible is not None:
            block = torch.where(visible, block, float("-inf"))
    return block if fold is None else fold.fold_mask(block)
