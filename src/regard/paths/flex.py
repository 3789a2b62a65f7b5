"""The flex path: torch's compiled flex_attention on CUDA, which skips the hidden blocks of a mask.

The mask is given as tables of hidden, visible and mixed blocks, and as a bool tensor that is read
in mixed blocks alone. On a CPU, where it has no gradient, it is taken by name only.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.core.mask import Window
from regard.core.request import Request
from regard.paths import fused
from regard.paths.layout import layout

SIZE = 128
"""Queries and keys of a block."""

NARROWEST = 16
"""The least width of queries and values that its kernels take."""


def unsupported_reason(request: Request) -> str | None:
    """Why flex_attention cannot compute this request, or None."""
    reason = fused.unsupported_reason(request)
    if reason:
        return reason
    query, key, value = request.query, request.key, request.value
    if request.mask is None:
        return "it has no mask"
    if request.bias is not None:
        return "a bias is added"
    if torch.compiler.is_compiling():
        return "it is compiled by itself, not within torch.compile"
    if query.device.type not in ("cuda", "cpu") or query.dtype == torch.float64:
        return f"its kernels are for CUDA and the CPU, not for {query.device.type} {query.dtype}"
    if min(query.shape[-1], value.shape[-1]) < NARROWEST:
        return f"its kernels need widths of at least {NARROWEST}"
    tracked = any(t.requires_grad for t in (query, key, value)) and torch.is_grad_enabled()
    return "it has no gradient on a CPU" if tracked and query.is_cpu else None


def pays(request: Request) -> bool:
    """Whether this path is faster than the fused one, to which torch's own is_causal belongs."""
    mask = request.mask
    if not request.query.is_cuda or fused.is_small(request):
        return False
    causal = isinstance(mask, Window) and mask.square_causal(*request.size)
    return not causal and unsupported_reason(request) is None


def flex(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ, mask) V over the visible blocks, (..., M, Dv)."""
    query, key, scale = fused.divided_form(request)
    fold, mask = layout(request.leading, request.key, request.value), request.mask
    assert mask is not None
    table = fold.fold_mask(mask.block(request.rows, slice(0, request.keys), request.grid))
    table = table.expand(fold.batch, fold.heads, *request.size)
    some, every = (fold.fold_mask(part) for part in mask.block_map(request.grid, SIZE))
    folded = (fold.fold_query(query), fold.fold_key(key), fold.fold_key(request.value))
    found = compiled(query.is_cpu)(
        *folded,
        block_mask=block_mask(table, some, every),
        scale=scale,
        enable_gqa=folded[0].shape[1] != folded[1].shape[1],
    )
    return fold.unfold(found)


@cache
def compiled(for_cpu: bool) -> Callable[..., Tensor]:
    """flex_attention, which is slow unless compiled; importing the compiler takes seconds."""
    from torch.nn.attention.flex_attention import flex_attention

    # for CPUs torch 2.13 writes wrong C++ if sizes may vary
    return torch.compile(flex_attention, dynamic=False if for_cpu else None)


def block_mask(table: Tensor, some: Tensor, every: Tensor) -> Any:
    """A mask as flex_attention takes it, from a bool tensor and a `BlockMap`.

    Args:
        table: (batch, heads, M, N)
        some, every: (batch or 1, heads or 1, blocks of queries or 1, blocks of keys or 1)
    """
    from torch.nn.attention.flex_attention import BlockMask

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return table[batch, head, query, key]

    *leading, queries, keys = table.shape
    blocks = -(-queries // SIZE), -(-keys // SIZE)
    some, every = (part.expand(*leading, *blocks) for part in (some, every))
    # a block beyond the end of the table is not whole
    inside = torch.ones(blocks, dtype=torch.bool, device=table.device)
    inside[queries // SIZE :] = False
    inside[:, keys // SIZE :] = False
    every = every & inside
    return BlockMask.from_kv_blocks(
        *_listed(some & ~every),
        *_listed(every),
        BLOCK_SIZE=SIZE,
        mask_mod=visible,
        seq_lengths=(queries, keys),
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each row of a bool table has, and which: those first, in order."""
    marked = blocks.to(torch.int32)
    order = marked.argsort(dim=-1, descending=True, stable=True)
    return marked.sum(-1, dtype=torch.int32), order.to(torch.int32)
