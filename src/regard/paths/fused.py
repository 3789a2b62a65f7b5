"""The fused path: dot products and softmax in one call of torch's flash attention.

For every score that is a dot product in disguise. The call is arranged so that torch does not
fall back to its slow path silently: four dimensions, equal widths, masks written out, `is_causal`
only where its alignment is ours.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core.blocks import in_functorch
from regard.core.lower import DotScore, is_dot, lower
from regard.core.mask import Grid, Mask, Window
from regard.core.normalize import softmax
from regard.core.request import Request
from regard.core.score import Dot, ScaledDot
from regard.paths.layout import Layout, layout
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import WHOLE, Tile

TINY = 64
"""Cells of a map below which no fast path is worth its preparation."""

LEAST = 2**27
"""Multiplications of a map from which looking for blocks to skip pays: about a millisecond."""

_ALL = slice(None)
_CAUSAL = (Tile(_ALL, _ALL, _ALL, causal=True),)


def direct(query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None) -> Tensor | None:
    """The commonest call, softmax(Q Kᵀ / √d, mask) V of four-dimensional tensors, at once.

    It is what `fused` gives for the same request, without making one. None if there is something
    to prepare or to complain about.
    """
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        return None
    shape, keys = query.shape, key.shape
    if (
        len(shape) != 4
        or keys != value.shape
        or shape[:2] != keys[:2]
        or shape[3] != keys[3]
        or query.dtype != key.dtype
        or key.dtype != value.dtype
        or not query.is_floating_point()
        or shape[0] * shape[1] * shape[2] * keys[2] <= TINY
        or shape[3] == 0
        or in_functorch()
    ):
        return None
    tiles = WHOLE if mask is None else _tiles(mask, (*shape[:3], keys[2]), shape[3], query.device)
    return (
        None if tiles is None else attend_tiles(query, key, value, tiles, 1.0 / math.sqrt(shape[3]))
    )


def _tiles(
    mask: Mask | Tensor, shape: tuple[int, ...], width: int, device: torch.device
) -> Sequence[Tile] | None:
    """A map of this shape (B, H, M, N) as one tile, if its mask is simple."""
    if isinstance(mask, Window) and mask.square_causal(*shape[2:]):
        return _CAUSAL
    if 2 * math.prod(shape) * width >= LEAST or torch.compiler.is_compiling():
        return None  # there may be blocks to skip
    if isinstance(mask, Mask):
        grid = Grid(shape[2], shape[3], 2, device)
        mask.check(grid)
        mask = mask.block(slice(0, shape[2]), slice(0, shape[3]), grid)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        return None  # there is something to complain about
    if mask.device != device or mask.dim() > 4:
        return None
    sizes = zip(mask.shape, shape[4 - mask.dim() :], strict=True)
    if not all(own in (1, size) for own, size in sizes):
        return None
    return (Tile(_ALL, _ALL, _ALL, mask),)


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
    return lower(request.zero_hidden())


def _mask(request: Request, fold: Layout) -> Tensor | None:
    """Mask and bias as one tensor that torch can fuse: bool, or float with -inf for hidden."""
    visible = request.visible(request.rows)
    if request.bias is None:
        return None if visible is None else fold.fold_mask(visible)
    bias = request.bias.detach().to(request.query.dtype)
    if visible is not None:
        bias = torch.where(visible, bias, float("-inf"))
    return fold.fold_mask(bias)
