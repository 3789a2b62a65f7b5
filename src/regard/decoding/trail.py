"""The way of every beam: what was emitted at each step, from which entry, and where it looked.

Nothing is moved while searching. A step leaves the weights as the model gave them, and then the
tokens that go on and the entries of the batch that they continue; a hypothesis is read off
backwards at the end.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Weights = dict[str, Tensor]


class Ending(NamedTuple):
    """Where a hypothesis ends: its last token and the entry that this continues."""

    steps: int  # number of its tokens
    entry: int  # of the batch that took the last step
    token: int  # the last
    score: float


class Trail:
    """Steps of a search over a batch whose entries are reordered and leave.

    >>> trail = Trail()
    >>> trail.step(np.array([5, 7]), np.array([0, 0]), None)  # two beams continue one entry
    >>> trail.step(np.array([8, 9]), np.array([1, 1]), None)  # both continue the second
    >>> trail.tokens(Ending(steps=3, entry=0, token=2, score=-1.0))
    (7, 8, 2)
    """

    def __init__(self) -> None:
        self._tokens: list[np.ndarray] = []  # of each step, (entries after it,)
        self._parents: list[np.ndarray] = []  # entries of the batch before, (entries after it,)
        self._weights: list[Weights] = []  # of each step, (entries before it, heads, S)

    def __len__(self) -> int:
        return len(self._tokens)

    def step(self, tokens: np.ndarray, parents: np.ndarray, weights: Weights | None) -> None:
        """Add a step: entry i of the batch after it emitted tokens[i] and continues parents[i]."""
        self._tokens.append(tokens)
        self._parents.append(parents)
        if weights is not None:
            self._weights.append(weights)

    def tokens(self, ending: Ending) -> tuple[int, ...]:
        """All that led to an ending."""
        found, entry = [ending.token], ending.entry
        for step in range(ending.steps - 2, -1, -1):
            found.append(int(self._tokens[step][entry]))
            entry = int(self._parents[step][entry])
        return tuple(reversed(found))

    def maps(self, endings: Sequence[Ending], lengths: Sequence[int]) -> list[Weights]:
        """Of each ending its maps by name, (heads, steps, S) each, S the length of its source."""
        if not self._weights or not endings:
            return [{} for _ in endings]
        steps = np.array([ending.steps for ending in endings])
        entry = np.array([ending.entry for ending in endings])
        rows = np.zeros((steps.max(), len(endings)), dtype=np.int64)  # entries that took each step
        for step in range(len(rows) - 1, -1, -1):
            before = steps - 1 > step  # those that went on from there
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
