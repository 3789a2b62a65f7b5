"""Where beams sit in the batch, and what each of them emitted.

Nothing is moved while searching: a step stores its tokens, the entries of the batch that they
continue, and the attention weights; a hypothesis is read backwards from its end.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Weights = dict[str, Tensor]


class Ending(NamedTuple):
    """The end of a hypothesis: its last token and the entry that it continues."""

    steps: int  # number of its tokens
    entry: int  # of the batch that took the last step
    token: int  # the last
    score: float


class BeamHistory:
    """Steps of a search over a batch whose entries are reordered and removed.

    >>> history = BeamHistory()
    >>> history.append(np.array([5, 7]), np.array([0, 0]), None)  # two beams continue one entry
    >>> history.append(np.array([8, 9]), np.array([1, 1]), None)  # both continue the second
    >>> history.tokens(Ending(steps=3, entry=0, token=2, score=-1.0))
    (7, 8, 2)
    """

    def __init__(self) -> None:
        self._tokens: list[np.ndarray] = []  # of each step, (entries after it,)
        self._parents: list[np.ndarray] = []  # entries of the batch before, (entries after it,)
        self._weights: list[Weights] = []  # of each step, (entries before it, heads, S)

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, tokens: np.ndarray, parents: np.ndarray, weights: Weights | None) -> None:
        """Add a step: entry i of the batch after it emitted tokens[i] and continues parents[i]."""
        self._tokens.append(tokens)
        self._parents.append(parents)
        if weights is not None:
            self._weights.append(weights)

    def tokens(self, ending: Ending) -> tuple[int, ...]:
        """All tokens of a hypothesis."""
        found, entry = [ending.token], ending.entry
        for step in range(ending.steps - 2, -1, -1):
            found.append(int(self._tokens[step][entry]))
            entry = int(self._parents[step][entry])
        return tuple(reversed(found))

    def maps(self, endings: Sequence[Ending], lengths: Sequence[int]) -> list[Weights]:
        """The maps of each hypothesis by name, (heads, steps, S), S the length of its source."""
        if not self._weights or not endings:
            return [{} for _ in endings]
        steps = np.array([ending.steps for ending in endings])
        entry = np.array([ending.entry for ending in endings])
        rows = np.zeros((steps.max(), len(endings)), dtype=np.int64)  # entries that took each step
        for step in range(len(rows) - 1, -1, -1):
            before = steps - 1 > step  # those with a later step
            entry[before] = self._parents[step][entry[before]]
            rows[step] = np.where(steps > step, entry, 0)
        found: list[Weights] = [{} for _ in endings]
        for name, first in self._weights[0].items():
            index = torch.from_numpy(rows).to(first.device)
            pairs = zip(self._weights, index, strict=False)
            whole = torch.stack([w[name].index_select(0, i) for w, i in pairs], dim=2)
            for own, map, end, length in zip(found, whole, steps, lengths, strict=True):
                own[name] = map[:, :end, :length].clone()  # (heads, steps, S)
        return found


def assign_slots(parents: np.ndarray, slots: int) -> np.ndarray:
    """Assign children to slots such that the first child of a beam keeps its parent's slot.

    The others take the slots of beams without children. This way few states have to be copied.

    >>> assign_slots(np.array([[2, 2, 0]]), slots=3)  # children 0 and 1 of beam 2, 2 of beam 0
    array([[2, 1, 0]])

    Args:
        parents: the beam that each child continues, (sentences, children)
        slots: number of beams before; it differs from the children at the first step only

    Returns: the child in each slot, (sentences, children)
    """
    sentences, children = parents.shape
    if slots != children:
        return np.broadcast_to(np.arange(children), parents.shape)
    row = np.arange(sentences)[:, None]
    same = parents[:, :, None] == parents[:, None, :]
    later = np.tril(same, -1).any(2)  # a child that is not its parent's first
    taken = np.zeros_like(later)
    np.put_along_axis(taken, parents, True, 1)
    free = np.argsort(taken, axis=1, kind="stable")  # free slots first
    rank = np.clip(later.cumsum(1) - 1, 0, None)
    slot = np.where(later, free[row, rank], parents)
    child = np.empty_like(slot)
    child[row, slot] = np.arange(children)
    return child


def fill_gaps(done: np.ndarray) -> np.ndarray:
    """The indices of unfinished entries, where the last ones fill the gaps of finished ones.

    >>> fill_gaps(np.array([False, True, False, False, True]))
    array([0, 3, 2])
    """
    count = int((~done).sum())
    order = np.arange(count)
    order[done[:count]] = count + (~done[count:]).nonzero()[0]
    return order
