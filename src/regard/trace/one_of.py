"""The mask of one example of a batch."""

from torch import Tensor

from regard.core.key_range import KeyRange
from regard.core.mask import Grid, Mask


class OneOf(Mask):
    """A mask of a batch, for one of its entries.

    >>> import torch
    >>> from regard.core.mask import lengths
    >>> grid = Grid(1, 3, 1, torch.device("cpu"))
    >>> OneOf(lengths(torch.tensor([3, 1])), 1, grid).dense(1, 3)
    tensor([[ True, False, False]])

    Args:
        mask: of the batch
        index: which of its entries
        grid: that of the batch
    """

    def __init__(self, mask: Mask, index: int, grid: Grid) -> None:
        self.mask, self.index, self.grid = mask, index, grid
        self.leading = max(mask.leading - 1, 0)

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return self._own(self.mask.block(rows, keys, self.grid), 2)

    def key_range(self, grid: Grid) -> KeyRange:
        low, high, full = self.mask.key_range(self.grid)
        full = self._own(full, 1) if isinstance(full, Tensor) else full
        return KeyRange(self._own(low, 1), self._own(high, 1), full)

    def ignores_queries(self) -> bool:
        return self.mask.ignores_queries()

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def _own(self, tensor: Tensor, tail: int) -> Tensor:
        """The entry's part of (*leading, *tail), where `tail` counts dimensions."""
        if tensor.dim() < self.grid.leading + tail:
            return tensor
        return tensor[self.index if len(tensor) > 1 else 0]

    def __repr__(self) -> str:
        return repr(self.mask)
