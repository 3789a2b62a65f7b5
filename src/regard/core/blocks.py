"""Blocks of query rows, recomputed in backward: how memory stays O(block · N)."""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.system import torch_internals
from regard.system.torch_internals import FakeTensor

Result = TypeVar("Result")

_FACTS = (torch.Size, torch.dtype, torch.device, torch.layout, bool, int, str)

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
) -> Tensor:
    """Apply `function(query rows, *other rows, which rows)` block by block and join the results.

    Each block is recomputed in backward, so that only one of them is in memory at a time. One
    block is not worth recomputing, and `torch.func` transforms cannot recompute.

    Args:
        query: (..., M, D)
        others: tensors (..., M, D') cut along with the query, or None
        elements: numbers that one row needs while it is computed
        budget: numbers that a block may need; `BLOCK_ELEMENTS` if not given

    Raises:
        RuntimeError: in backward, if a tensor that the function reads was changed in place since
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


def version_check(tensors: Sequence[tuple[str, Tensor]], consequence: str) -> Callable[[], None]:
    """A function that raises RuntimeError if one of these named tensors was changed in place since.

    Torch counts no changes in a compiler, and none of tensors that were made in inference mode.
    """
    if torch.compiler.is_compiling():
        return lambda: None
    versions = [(name, weakref.ref(t), t._version) for name, t in tensors if not t.is_inference()]

    def check() -> None:
        for name, reference, version in versions:
            tensor = reference()
            if tensor is not None and tensor._version != version:
                raise RuntimeError(
                    f"{name} was changed in place after attend(), so {consequence}; change it "
                    "later, or give attend() a clone"
                )

    return check


class _Reads(TorchFunctionMode):
    """Collects the tensors that operations read and did not make."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[int, Tensor] = {}
        self._made: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():  # a callable that the user has compiled
            return result
        if result is None or isinstance(result, _FACTS):  # of a tensor, not its numbers
            return result
        for tensor in _tensors_in((args, kwargs)):
            if id(tensor) not in self._made:
                self.tensors[id(tensor)] = tensor
        self._made.update(id(tensor) for tensor in _tensors_in(result))
        return result


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part)


def recomputed(function: Callable[..., Result], *args: Any) -> Result:
    """Call `function` now, keep only its inputs, and call it again in backward.

    Raises:
        RuntimeError: in backward, if a tensor that it reads was changed in place since: one of
            the arguments, or any other, such as a parameter of a score
    """
    from torch.utils.checkpoint import checkpoint

    check: Callable[[], None] | None = None

    def checked(*args: Any) -> Result:
        nonlocal check
        if torch.compiler.is_compiling():
            return function(*args)
        if check is not None:
            check()
        with _Reads() as reads:  # again too, so that what the user has compiled finds its graph
            result = function(*args)
        if check is not None:
            return result
        named = [(f"a tensor of shape {tuple(t.shape)}", t) for t in reads.tensors.values()]
        check = version_check(named, "its gradient cannot be computed")
        return result

    return cast(Result, checkpoint(checked, *args, use_reentrant=False))


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
