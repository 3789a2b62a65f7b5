"""A new order of the entries of a batch, computed once for all layers."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


class BatchReorder:
    """A new order of a batch: entry i becomes what entry index[i] was.

    >>> reorder = BatchReorder(torch.tensor([0, 0, 2]), batch=4)
    >>> reorder.is_identity, reorder.changed.tolist(), reorder.sources.tolist()
    (False, [1], [0])

    Args:
        index: integers (new batch,)
        batch: number of entries before
        in_place: whether the old order is not needed any more: then only entries that change are
            copied, over the old ones
    """

    def __init__(self, index: Tensor, batch: int, *, in_place: bool = False) -> None:
        self.index, self.batch, self.in_place = index, batch, in_place
        self._numbers = index.detach().cpu().numpy()
        self._groups: dict[int, tuple[BatchReorder, int]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @cached_property
    def _changed(self) -> np.ndarray:
        return (self._numbers != np.arange(len(self))).nonzero()[0]

    @property
    def is_identity(self) -> bool:
        """Whether no entry changes."""
        return len(self) == self.batch and not len(self._changed)

    @cached_property
    def changed(self) -> Tensor:
        """The entries that change."""
        return torch.from_numpy(self._changed).to(self.index.device)

    @cached_property
    def sources(self) -> Tensor:
        """The old entry that each of `changed` becomes."""
        return torch.from_numpy(self._numbers[self._changed]).to(self.index.device)

    def apply(self, tensor: Tensor, part: Callable[[Tensor], Tensor] = lambda t: t) -> Tensor:
        """A tensor (batch, ...) in the new order.

        Args:
            part: the view of it that is in use; the rest need not be copied
        """
        if self.is_identity:
            return tensor
        if not self.in_place or len(self) > self.batch or tensor.requires_grad:
            return tensor.index_select(0, self.index)
        new = tensor[: len(self)]
        if len(self._changed):
            part(new).index_copy_(0, self.changed, part(tensor).index_select(0, self.sources))
        return new

    def by_group(self, size: int) -> tuple["BatchReorder", int]:
        """The new order of something that `size` consecutive entries share.

        It is never applied in place, since other states may share it, too.

        Returns: the new order, and the number of consecutive entries that share one afterwards
        """
        if size not in self._groups:
            owner = self._numbers // size
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            counts = np.diff(first, append=len(owner))
            after = int(counts[0]) if len(counts) else 1
            if (counts != after).any():
                first, after = np.arange(len(owner)), 1
            order = torch.from_numpy(owner[first]).to(self.index.device)
            self._groups[size] = BatchReorder(order, self.batch // size), after
        return self._groups[size]


def as_reorder(index: "Tensor | BatchReorder", batch: int) -> BatchReorder:
    """The new order given by an index (new batch,), if it is not one already."""
    return index if isinstance(index, BatchReorder) else BatchReorder(index, batch)
