"""Masks of torch's flex_attention: a function of indices, alone or in a `BlockMask`."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.core.mask.algebra import Grid, Mask

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class FlexMask(Mask):
    """What `mask_mod(b, h, q, kv)` is true for, where q and kv count from 0.

    Args:
        mask_mod: a function of four whole numbers, as flex_attention takes it
        batch, heads: how many it tells apart; 1 for those it treats alike
    """

    def __init__(self, mask_mod: MaskMod, batch: int = 1, heads: int = 1) -> None:
        self.mask_mod, self.sizes = mask_mod, (batch, heads)
        self.leading = 2 if heads > 1 else int(batch > 1)

    def spread(self, grid: Grid) -> torch.Size:
        return torch.Size(self._sizes(grid))

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        sizes, size = self._sizes(grid), (rows.stop - rows.start, keys.stop - keys.start)
        if not all(size):
            return torch.ones(*sizes, *size, dtype=torch.bool, device=grid.device)
        ranges = [range(size) for size in (*sizes, 1, 1)[:2]]
        ranges += [range(rows.start, rows.stop), range(keys.start, keys.stop)]
        function: Callable[..., Any] = self.mask_mod
        for argument in (3, 2, 1, 0):  # one index after the other, as flex_attention does
            dims: list[int | None] = [None] * 4
            dims[argument] = 0
            function = torch.vmap(function, tuple(dims))
        indices = (torch.arange(r.start, r.stop, device=grid.device) for r in ranges)
        return function(*indices).reshape(*sizes, *size)

    def _sizes(self, grid: Grid) -> tuple[int, ...]:
        """Its leading dimensions, lined up with the first ones of a grid."""
        own = self.sizes[: self.leading]
        return (*own, *(1,) * (grid.leading - self.leading)) if own else ()

    def __repr__(self) -> str:
        return f"mask_mod({getattr(self.mask_mod, '__name__', type(self.mask_mod).__name__)})"


def flex_mask(mask: Any) -> Mask | None:
    """A `BlockMask` or a mask_mod as a mask; None for anything else.

    >>> flex_mask(lambda b, h, q, kv: q >= kv).dense(2, 3).int()
    tensor([[1, 0, 0],
            [1, 1, 0]], dtype=torch.int32)

    Raises:
        ValueError: for a mask_mod of the batch or heads, whose number it does not tell
    """
    if hasattr(mask, "mask_mod") and hasattr(mask, "kv_num_blocks"):
        batch, heads = mask.kv_num_blocks.shape[:2]
        return FlexMask(mask.mask_mod, batch, heads)
    if not callable(mask) or isinstance(mask, type | torch.nn.Module) or not _takes_four(mask):
        return None
    b, h, q, kv = torch.zeros(4, dtype=torch.long)
    with _Uses(b, h) as uses:
        mask(b, h, q, kv)
    if uses.found:
        raise ValueError(
            "this mask_mod depends on b or h, whose numbers it does not tell; give "
            "create_block_mask(mask_mod, B, H, M, N) of torch.nn.attention.flex_attention"
        )
    return FlexMask(mask)


def _takes_four(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with four arguments, as a mask_mod is."""
    try:
        inspect.signature(function).bind(0, 0, 0, 0)
    except (TypeError, ValueError):  # other arguments, or none that are known
        return False
    return True


class _Uses(TorchFunctionMode):
    """Whether some tensors are used in a block."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        self.tensors, self.found = tensors, False

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        waiting = [*args, *(kwargs or {}).values()]
        while waiting:
            each = waiting.pop()
            if isinstance(each, tuple | list):
                waiting += each
            self.found |= any(each is tensor for tensor in self.tensors)
        return function(*args, **(kwargs or {}))
