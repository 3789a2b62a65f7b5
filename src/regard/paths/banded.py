"""The banded path: only the blocks of queries and keys in which somebody sees something.

Windows, causal masks, packed segments and padding know each query's interval of keys. Blocks of
queries go to torch's flash attention with just the keys in their range, forward and backward.
"""

import torch
from torch import Tensor

from regard.core.blocks import in_functorch
from regard.core.key_range import KeyRange
from regard.core.lower import DotScore
from regard.core.mask import Window
from regard.core.request import Request
from regard.paths import fused
from regard.paths.layout import layout
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import plan_tiles

WORTH = 0.8
"""The share of visible cells below which skipping the others pays."""


def unsupported_reason(request: Request) -> str | None:
    """Why this request cannot run in bands, or None."""
    why = fused.unsupported_reason(request)
    if why:
        return why
    if request.mask is None:
        return "there is no mask"
    if request.bias is not None:
        return "a bias is added"
    if _key_range(request) is None:
        return "the heads of one sequence see different keys"
    return None


def pays(request: Request) -> bool:
    """Whether enough is hidden for this path to be faster than the fused one."""
    mask = request.mask
    if torch.compiler.is_compiling() or mask is None:
        return False  # which blocks to skip depends on numbers, which a compiler does not know
    if isinstance(mask, Window) and mask.square_causal(request.queries, request.keys):
        return False  # torch's own is_causal skips the upper triangle
    most = request.cells * (request.query.shape[-1] + request.value.shape[-1])
    if most < fused.LEAST or unsupported_reason(request) is not None:
        return False  # not even worth counting
    visible = visible_cells(request)
    saved = most - visible * most // request.cells
    return visible < WORTH * request.cells and saved > fused.LEAST


def visible_cells(request: Request) -> int:
    """How many cells of the map are in some key range."""
    if request.mask is None or in_functorch():
        return request.cells
    keys = request.mask.key_range(request.grid)
    size = (keys.high - keys.low).expand(*request.leading, request.queries)
    return int(size.sum())


def banded(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ, mask) V over the visible blocks, (..., M, Dv)."""
    request = fused.prepared(request)
    assert isinstance(request.score, DotScore)
    assert request.mask is not None
    fold = layout(request)
    keys = _key_range(request)
    assert keys is not None
    mask, grid = request.mask, request.grid

    def tile_mask(batch: slice, rows: slice, keys: slice) -> Tensor:
        block = fold.fold_mask(mask.block(rows, keys, grid))
        return block if block.shape[0] == 1 else block[batch]

    full = torch.as_tensor(keys.full)
    tiles = plan_tiles(keys.low, keys.high, full, tile_mask, request.queries, request.keys)
    output = attend_tiles(
        fold.fold_query(request.query),
        fold.fold_key(request.key),
        fold.fold_key(request.value),
        tiles,
        request.score.scale,
    )
    return fold.unfold(output)


def _key_range(request: Request) -> KeyRange | None:
    assert request.mask is not None
    return layout(request).fold_key_range(request.mask.key_range(request.grid), request.queries)
