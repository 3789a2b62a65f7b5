"""Blocks of query rows, recomputed in backward: how memory stays O(block · N)."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from regard.system import torch_internals
from regard.system.torch_internals import FakeTensor

Result = TypeVar("Result")

BLOCK_ELEMENTS = 2**23
"""The numbers in a block: 32 MB in float32.

From that size on, C libraries give memory back to the system at once. Smaller blocks come from a
heap, where they leave holes between longer-lived ones: measured, ten times the memory.
"""


def block_rows(elements: int, budget: int | None = None) -> int:
    """The number of query rows in a block of `budget` numbers when one row needs `elements`.

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
    reads: Sequence[Tensor] = (),
) -> Tensor:
    """Apply `function(query rows, *other rows, which rows)` block by block and join the results.

    Each block is recomputed in backward, so that only one of them is in memory at a time. One
    block is not worth recomputing, and `torch.func` transforms cannot recompute.

    Args:
        query: (..., M, D)
        others: tensors (..., M, D') cut along with the query, or None
        elements: numbers that one row needs while it is computed
        budget: numbers that a block may need; `BLOCK_ELEMENTS` if not given
        reads: whole tensors that the function reads as well

    Raises:
        RuntimeError: in backward, if one of the tensors was changed in place since
    """
    length = query.shape[-2]
    rows = block_rows(elements, budget)
    if rows >= length or in_functorch():
        return function(query, *others, slice(0, length))
    again = torch.is_grad_enabled()
    # split, not slices: its backward is one concatenation, not a zero-filled query per block
    columns = [None if t is None else t.split(rows, dim=-2) for t in (query, *others)]
    tensors = [t for t in (query, *others, *reads) if t is not None] if again else []
    check = version_check([("an input", t) for t in tensors], "its gradient cannot be computed")

    def block(*args: Any) -> Tensor:
        check()
        return function(*args)

    blocks = []
    for index, start in enumerate(range(0, length, rows)):
        cut = [None if column is None else column[index] for column in columns]
        where = slice(start, min(start + rows, length))
        blocks.append(recomputed(block, *cut, where) if again else function(*cut, where))
    return torch.cat(blocks, dim=-2)


def version_check(tensors: Sequence[tuple[str, Tensor]], consequence: str) -> Callable[[], None]:
    """A function that raises RuntimeError if one of these named tensors was changed in place since.

    Torch counts no changes in a compiler and in inference mode.
    """
    if torch.compiler.is_compiling():
        return lambda: None
    versions = [(name, t, t._version) for name, t in tensors if not t.is_inference()]

    def check() -> None:
        for name, tensor, version in versions:
            if tensor._version != version:
                raise RuntimeError(
                    f"{name} was changed in place after attend(), so {consequence}; give "
                    "attend() a clone"
                )

    return check


def recomputed(function: Callable[..., Result], *args: Any) -> Result:
    """Call `function` now, keep only its inputs, and call it again in backward."""
    from torch.utils.checkpoint import checkpoint

    return cast(Result, checkpoint(function, *args, use_reentrant=False))


def in_functorch() -> bool:
    """Whether a `torch.func` transform or forward-mode AD is active."""
    if torch.compiler.is_compiling():
        return False  # the compiler applies such transforms itself
    return torch_internals.is_transformed()


def can_inspect_values(*tensors: Tensor) -> bool:
    """Whether a decision may depend on the numbers in these tensors.

    It may not in a compiler, in `torch.func`, under FakeTensorMode or make_fx, and for tensors on
    the meta device, which have no numbers.
    """
    if torch.compiler.is_compiling() or in_functorch():
        return False
    if torch_internals.is_traced():
        return False
    return not any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors)
