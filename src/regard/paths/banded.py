"""The banded path: only the blocks of queries and keys in which some query sees some key.

Windows, causal masks, packed segments and padding know each query's interval of keys. Blocks of
queries go to torch's flash attention with just the keys in their range, forward and backward.
"""

import torch
from torch import Tensor

from regard.core.blocks import can_inspect_values
from regard.core.key_range import KeyRange
from regard.core.mask import Window
from regard.core.request import Request
from regard.paths import fused
from regard.paths.layout import Layout, layout
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import plan_tiles

LEAST = 2**27
"""Multiplications from which searching for blocks to skip pays: about a millisecond."""

WORTH = 0.8
"""The share of visible cells below which skipping the others pays."""


def unsupported_reason(request: Request) -> str | None:
    """Why this request cannot run in bands, or None."""
    reason = fused.unsupported_reason(request)
    if reason:
        return reason
    if request.mask is None:
        return "there is no mask"
    if request.bias is not None:
        return "a bias is added"
    if not torch.compiler.is_compiling() and not can_inspect_values(request.query):
        return "which blocks to skip depends on values that cannot be inspected here"
    if _key_range(request) is None:
        return "the heads of one sequence see different keys"
    return None


def pays(request: Request) -> bool:
    """Whether enough is hidden for this path to be faster than the fused one."""
    mask = request.mask
    if mask is None:
        return False
    if isinstance(mask, Window) and mask.square_causal(*request.size):
        return False  # torch's own is_causal skips the upper triangle
    if not can_inspect_values(request.query):
        return False
    most = request.cells * (request.query.shape[-1] + request.value.shape[-1])
    if most < LEAST or unsupported_reason(request) is not None:
        return False  # not even worth counting
    visible = visible_cells(request)
    saved = most - visible * most // request.cells
    return visible < WORTH * request.cells and saved > LEAST


def visible_cells(request: Request) -> int:
    """The number of cells of the map that lie in the key range of their query."""
    if request.mask is None or not can_inspect_values(request.query):
        return request.cells
    keys = request.mask.key_range(request.grid)
    size = (keys.high - keys.low).expand(*request.leading, request.queries)
    return int(size.sum())


def banded(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ, mask) V over the visible blocks, (..., M, Dv)."""
    query, key, scale = fused.divided_form(request)
    fold, mask, grid = _layout(request), request.mask, request.grid
    keys = _key_range(request)
    assert mask is not None
    assert keys is not None

    def tile_mask(batch: slice, rows: slice, columns: slice) -> Tensor:
        block = fold.fold_mask(mask.block(rows, columns, grid))
        return block if block.shape[0] == 1 else block[batch]

    full = torch.as_tensor(keys.full)
    tiles = plan_tiles(keys.low, keys.high, full, tile_mask, request.queries, request.keys)
    folded = (fold.fold_query(query), fold.fold_key(key), fold.fold_key(request.value))
    return fold.unfold(attend_tiles(*folded, tiles, scale, fused.sink_of(request, fold)))


def _key_range(request: Request) -> KeyRange | None:
    assert request.mask is not None
    return _layout(request).fold_key_range(request.mask.key_range(request.grid), request.queries)


def _layout(request: Request) -> Layout:
    return layout(request.leading, request.key, request.value)
