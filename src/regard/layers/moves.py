"""Which entries of a batch go where, worked out once for all the layers that follow."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


class Moves:
    """A new order of a batch: entry i becomes what entry index[i] was.

    >>> moves = Moves(torch.tensor([0, 0, 2]), batch=4)
    >>> moves.stays, moves.places.tolist(), moves.origins.tolist()
    (False, [1], [0])

    Args:
        index: whole numbers (new batch,)
        batch: how many entries there were
        spent: whether nobody will look at the old order again: then what stays in its place is
            not copied, and what moves is written over what was there
    """

    def __init__(self, index: Tensor, batch: int, *, spent: bool = False) -> None:
        self.index, self.batch, self.spent = index, batch, spent
        self._numbers = index.detach().cpu().numpy()
        self._groups: dict[int, tuple[Moves, int]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @cached_property
    def _moved(self) -> np.ndarray:
        return (self._numbers != np.arange(len(self))).nonzero()[0]

    @property
    def stays(self) -> bool:
        """Whether every entry of the batch stays in its place."""
        return len(self) == self.batch and not len(self._moved)

    @cached_property
    def places(self) -> Tensor:
        """The places to which another entry moves."""
        return torch.from_numpy(self._moved).to(self.index.device)

    @cached_property
    def origins(self) -> Tensor:
        """Where that entry was, one for each place."""
        return torch.from_numpy(self._numbers[self._moved]).to(self.index.device)

    def of(self, tensor: Tensor, part: Callable[[Tensor], Tensor] = lambda t: t) -> Tensor:
        """A tensor (batch, ...) in the new order.

        Args:
            part: the view of it that matters; the rest need not be copied
        """
        if self.stays:
            return tensor
        if not self.spent or len(self) > self.batch or tensor.requires_grad:
            return tensor.index_select(0, self.index)
        new = tensor[: len(self)]
        if len(self._moved):
            part(new).index_copy_(0, self.places, part(tensor).index_select(0, self.origins))
        return new

    def groups(self, size: int) -> tuple["Moves", int]:
        """The same for a batch in which each `size` entries in a row share one of something.

        What is shared belongs to others too, and is never written over.

        Returns: how the shared things move, and how many entries in a row share one afterwards
        """
        if size not in self._groups:
            owner = self._numbers // size
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            counts = np.diff(first, append=len(owner))
            after = int(counts[0]) if len(counts) else 1
            if (counts != after).any():
                first, after = np.arange(len(owner)), 1
            order = torch.from_numpy(owner[first]).to(self.index.device)
            self._groups[size] = Moves(order, self.batch // size), after
        return self._groups[size]


def as_moves(index: "Tensor | Moves", batch: int) -> Moves:
    """Moves of a batch that is not spent, if they are not worked out yet."""
    return index if isinstance(index, Moves) else Moves(index, batch)
