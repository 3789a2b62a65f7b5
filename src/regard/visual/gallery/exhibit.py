"""An exhibit of the gallery, the sentence pair that all of them share, and what each costs."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.visual.gallery.texts import EXHIBITS, Text, label

# Bahdanau et al. 2015 showed their first alignment on this pair (figure 3a).
SOURCE = (
    "the", "agreement", "on", "the", "European", "Economic", "Area", "was", "signed", "in",
    "August", "1992", ".",
)  # fmt: skip
TARGET = (
    "l'", "accord", "sur", "la", "zone", "économique", "européenne", "a", "été", "signé", "en",
    "août", "1992", ".",
)  # fmt: skip
PARTNER = (0, 1, 2, 3, 6, 5, 4, 7, 7, 8, 9, 10, 11, 12)
"""For each target word, the index of the source word it translates."""

WORD_WIDTH = 32
LENGTH, WIDTH = 512, 64  # of what is timed
LONGEST = 2048  # that can be timed

Timed = Callable[[int], Callable[[], object]]
"""Makes a forward pass of some length."""


@dataclass(frozen=True)
class Exhibit:
    """One mechanism: its code, the map it made, and what can be timed."""

    key: str  # of its texts, and the name of its files
    code: str
    weights: Tensor  # (M, N)
    rows: Sequence[str]
    columns: Sequence[str]
    timed: Timed

    def text(self, language: str) -> Text:
        """Name, formula, paper and caption."""
        return EXHIBITS[self.key][language]

    @property
    def room(self) -> str:
        """The key of its room."""
        return self.key.partition("-")[0]

    def labels(self, language: str) -> tuple[list[str], list[str]]:
        """The labels of rows and columns."""
        rows, columns = [[label(text, language) for text in s] for s in (self.rows, self.columns)]
        return rows, columns

    @cached_property
    def measured(self) -> tuple[float, float]:
        """The times of a forward pass of length `LENGTH` and of torch's SDPA in this run."""
        return self.times(LENGTH)

    def times(self, length: int) -> tuple[float, float]:
        """Measure a forward pass and torch's SDPA, each of `length` ≤ `LONGEST`, in seconds."""
        x = torch.randn(1, 1, length, WIDTH)
        with torch.no_grad():
            dense = partial(F.scaled_dot_product_attention, x, x, x)
            ours, theirs = _best_times(self.timed(length), dense)
        return ours, theirs


class Words(NamedTuple):
    """Vectors of the source words (N, WORD_WIDTH) and the target words (M, WORD_WIDTH)."""

    source: Tensor
    target: Tensor


def words() -> Words:
    """The same vectors every time; a word and its translation are close to each other."""
    generator = torch.Generator().manual_seed(4)
    source = torch.randn(len(SOURCE), WORD_WIDTH, generator=generator)
    noise = torch.randn(len(TARGET), WORD_WIDTH, generator=generator)
    return Words(source, source[list(PARTNER)] * 0.9 + 0.45 * noise)


def train(
    parameters: Iterable[nn.Parameter], weights: Callable[[], Tensor], goal: Sequence[int] = PARTNER
) -> None:
    """Fit parameters until most of the weight of row i is on column goal[i]; a second or so.

    Args:
        parameters: of the mechanism
        weights: computes its map, (M, N)
        goal: a column for each row, by default the word that the row translates
    """
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    rows, columns = torch.arange(len(goal)), torch.tensor(goal)
    with torch.enable_grad():
        for _ in range(200):
            found = weights()[rows, columns]
            if found.mean() > 0.8:
                break
            optimizer.zero_grad()
            (-found.clamp(min=1e-9).log().mean()).backward()
            optimizer.step()


def _best_times(*jobs: Callable[[], object]) -> list[float]:
    """The best of five times for each job, measured in turns."""
    for job in jobs:
        job()
    best = [float("inf")] * len(jobs)
    for _ in range(5):
        for place, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            best[place] = min(best[place], time.perf_counter() - start)
    return best
