"""The banded path: only the blocks of queries and keys in which some query sees some key.

Windows, causal masks, packed segments and padding know each query's interval of keys. Blocks of
queries go to torch's flash attention with just the keys in their range, forward and backward.
"""

import torch
from torch import Tensor

from regard.core.blocks import can_inspect_values
from regard.core.key_range import KeyRange
from regard.core.request import Request
from regard.paths import fused
from regard.paths.layout import Layout, layout
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import plan_tiles

WORTH = 0.8
"""The share of visible cells below which skipping the others pays."""


def unsupported_reason(request: Request) -> str | None:
    """Why this request cannot run in bands, or None."""
    reason = unsupported_anyway(request)
    if reason:
        return reason
    if key_range(request) is None:
        return "the heads of one sequence see different keys"
    return None


def unsupported_anyway(request: Request) -> str | None:
    """Why no hidden blocks of this request can be skipped, whatever its mask, or None."""
    reason = fused.unsupported_reason(request)
    if reason:
        return reason
    if request.mask is None:
        return "it has no mask"
    if request.bias is not None:
        return "a bias is added"
    if not torch.compiler.is_compiling() and not can_inspect_values(request.query):
        return "which blocks to skip depends on values that cannot be inspected here"
    return None


def pays(request: Request, visible: int) -> bool:
    """Whether computing `visible` cells alone is faster than the fused path."""
    width = request.query.shape[-1] + request.value.shape[-1]
    hidden = request.cells - visible
    return visible < WORTH * request.cells and hidden * width > fused.LEAST


def cells_in_range(request: Request) -> int:
    """The number of cells of the map that lie in the key range of their query."""
    if request.mask is None or not can_inspect_values(request.query):
        return request.cells
    return cells_in(request.mask.key_range(request.grid), request)


def cells_in(keys: KeyRange, request: Request) -> int:
    """The number of cells of the map in the intervals `keys`, which may be folded."""
    return round(float((keys.high - keys.low).double().mean()) * request.cells / request.keys)


def banded(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ, mask) V over the visible blocks, (..., M, Dv)."""
    query, key, scale = fused.divided_form(request)
    fold, mask, grid = _layout(request), request.mask, request.grid
    keys = key_range(request)
    assert mask is not None
    assert keys is not None

    def tile_mask(batch: slice, rows: slice, columns: slice) -> Tensor:
        block = fold.fold_mask(mask.block(rows, columns, grid))
        return block if block.shape[0] == 1 else block[batch]

    full = torch.as_tensor(keys.full)
    tiles = plan_tiles(keys.low, keys.high, full, tile_mask, request.queries, request.keys)
    folded = (fold.fold_query(query), fold.fold_key(key), fold.fold_key(request.value))
    return fold.unfold(attend_tiles(*folded, tiles, scale, fused.sink_of(request, fold)))


def key_range(request: Request) -> KeyRange | None:
    """The interval of keys of each query, (batch or 1, M); None if heads see different keys."""
    assert request.mask is not None
    return _layout(request).fold_key_range(request.mask.key_range(request.grid), request.queries)


def _layout(request: Request) -> Layout:
    return layout(request.leading, request.key, request.value)
