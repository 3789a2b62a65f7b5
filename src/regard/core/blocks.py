"""Blocks of query rows, recomputed in backward: how memory stays O(block · N)."""

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Result = TypeVar("Result")

BLOCK_ELEMENTS = 2**23
"""How many numbers make a block: 32 MB in float32.

From that size on, C libraries give memory back to the system at once. Smaller blocks are cut from
a heap, where they leave holes between what lives longer: measured, ten times the memory.
"""


def block_rows(elements: int, budget: int | None = None) -> int:
    """How many query rows make a block of `budget` numbers when one row needs `elements`.

    >>> block_rows(2**21)
    4
    """
    return max(1, math.ceil((budget or BLOCK_ELEMENTS) / max(1, elements)))


def by_rows(
    function: Callable[..., Tensor],
    query: Tensor,
    *others: Tensor | None,
    elements: int,
    budget: int | None = None,
) -> Tensor:
    """Apply `function(query rows, *other rows, which rows)` block by block and join the results.

    Each block is recomputed in backward, so that only one of them is in memory at a time. One
    block is not worth recomputing, and `torch.func` transforms cannot recompute.

    Args:
        query: (..., M, D)
        others: tensors (..., M, D') cut along with the query, or None
        elements: numbers that one row needs while it is worked on
        budget: numbers that a block may need; `BLOCK_ELEMENTS` if not given
    """
    length = query.shape[-2]
    rows = block_rows(elements, budget)
    if rows >= length or in_functorch():
        return function(query, *others, slice(0, length))
    again = torch.is_grad_enabled()
    # split, not slices: its backward is one concatenation, not a zero-filled query per block
    columns = [None if t is None else t.split(rows, dim=-2) for t in (query, *others)]
    blocks = []
    for index, start in enumerate(range(0, length, rows)):
        cut = [None if column is None else column[index] for column in columns]
        where = slice(start, min(start + rows, length))
        blocks.append(recomputed(function, *cut, where) if again else function(*cut, where))
    return torch.cat(blocks, dim=-2)


def recomputed(function: Callable[..., Result], *args: Any) -> Result:
    """Call `function` now, keep its inputs only, and call it again in backward."""
    from torch.utils.checkpoint import checkpoint

    return cast(Result, checkpoint(function, *args, use_reentrant=False))


def in_functorch() -> bool:
    """Whether a `torch.func` transform or forward-mode AD is at work."""
    if torch.compiler.is_compiling():
        return False  # the compiler applies such transforms itself
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def can_inspect_values() -> bool:
    """Whether a decision may depend on the numbers in a tensor."""
    return not torch.compiler.is_compiling() and not in_functorch()
