"""The fused path: dot products and softmax in one call of torch's flash attention.

For every score that is a dot product in disguise. The call is arranged so that torch does not
fall back to its slow path silently: four dimensions, equal widths, masks written out, `is_causal`
only where its alignment is ours.
"""

import torch
from torch import Tensor

from regard.core.blocks import transformed
from regard.core.lower import DotScore, is_dot, lower
from regard.core.mask import Window
from regard.core.normalize import softmax
from regard.core.request import Request
from regard.core.score import Dot, ScaledDot
from regard.paths.layout import Layout, layout
from regard.paths.tiles import Tile, attend_tiles

TINY = 1024
"""Cells of a map below which no fast path is worth its preparation."""

_ALL = slice(None)


def direct(query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
    """The plain call, softmax(Q Kᵀ / √d) V, without any preparation; None if it needs some."""
    shape = query.shape
    if (
        len(shape) != 4
        or key.shape != value.shape
        or shape[:2] != key.shape[:2]
        or shape[3] != key.shape[3]
        or query.dtype != key.dtype
        or key.dtype != value.dtype
        or not query.is_floating_point()
        or shape[0] * shape[1] * shape[2] * key.shape[2] <= TINY
        or shape[3] == 0
        or transformed()
    ):
        return None
    whole = Tile(_ALL, slice(0, shape[2]), slice(0, key.shape[2]), None, False)
    return attend_tiles(query, key, value, (whole,), shape[3] ** -0.5)


def refuses(request: Request) -> str | None:
    """Why torch cannot fuse this request, or None."""
    if not is_dot(request.score):
        return "the score is not a dot product"
    if request.normalize is not softmax:
        return "the normalizer is not softmax"
    if request.dropout:
        return "dropout is not fused"
    if request.bias is not None and request.bias.requires_grad:
        return "the bias needs a gradient"
    if transformed():
        return "torch.func or forward-mode AD is at work"
    if not request.cells or not request.query.shape[-1] or not request.value.shape[-1]:
        return "there is nothing to compute"
    return None


def fused(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ + bias, mask) V in one call, (..., M, Dv)."""
    request = prepared(request)
    assert isinstance(request.score, DotScore)
    fold = layout(request)
    mask = request.mask
    causal = (
        isinstance(mask, Window)
        and mask.square_causal(request.queries, request.keys)
        and request.bias is None
    )
    block = None if causal else _mask(request, fold)
    whole = Tile(_ALL, request.rows, slice(0, request.keys), block, causal)
    output = attend_tiles(
        fold.fold_query(request.query),
        fold.fold_key(request.key),
        fold.fold_key(request.value),
        (whole,),
        request.score.scale,
    )
    return fold.unfold(output)


def prepared(request: Request) -> Request:
    """The request in dot form, safe from what nobody sees.

    The kernels see to that by themselves, at less cost, where queries and keys reach them as they
    were given; a projection would meet the hidden ones first.
    """
    as_given = isinstance(request.score, Dot | ScaledDot)
    if as_given and request.query.is_cpu and not torch.compiler.is_compiling():
        return lower(request)
    return lower(request.cleaned())


def _mask(request: Request, fold: Layout) -> Tensor | None:
    """Mask and bias as one tensor that torch can fuse: bool, or float with -inf for hidden."""
    visible = request.visible(request.rows)
    if request.bias is None:
        return None if visible is None else fold.fold_mask(visible)
    bias = request.bias.detach().to(request.query.dtype)
    if visible is not None:
        bias = torch.where(visible, bias, float("-inf"))
    return fold.fold_mask(bias)
