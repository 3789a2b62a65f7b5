"""Runs: neighbouring queries whose intervals of keys move evenly."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

SHORT = 32  # queries; a shorter run is not worth a tile of its own


class Run(NamedTuple):
    """Queries start … stop - 1, of which number i sees the keys [low + a·i, high + b·i)."""

    start: int
    stop: int
    low: int
    high: int
    slope: tuple[int, int]  # (a, b): (0, 0) is a rectangle, (0, 1) causal, (1, 1) a window
    full: bool  # whether they see all of these keys, or only none outside

    @property
    def size(self) -> int:
        """How many queries."""
        return self.stop - self.start

    def part(self, start: int, stop: int) -> "Run":
        """Some of its queries."""
        a, b = (slope * (start - self.start) for slope in self.slope)
        return self._replace(start=start, stop=stop, low=self.low + a, high=self.high + b)

    def hull(self) -> tuple[int, int]:
        """All keys that one of the queries can see."""
        last = self.part(self.stop - 1, self.stop)
        return min(self.low, last.low), max(self.high, last.high)


def find_runs(lows: np.ndarray, highs: np.ndarray, fulls: np.ndarray) -> list[list[Run]]:
    """The runs of each entry, without queries that see nothing.

    >>> find_runs(np.array([[0, 0, 0, 0]]), np.array([[5, 5, 6, 7]]), np.ones((1, 4), bool))[0]
    [Run(start=0, stop=2, low=0, high=5, slope=(0, 0), full=True),
     Run(start=2, stop=4, low=0, high=6, slope=(0, 1), full=True)]

    Args:
        lows, highs, fulls: the interval of every query and whether it is full, (entries, M)
    """
    entries, queries = lows.shape
    blind = lows >= highs
    a, b = lows[:, 1:] - lows[:, :-1], highs[:, 1:] - highs[:, :-1]  # from a query to the next
    ends = (fulls[:, 1:] != fulls[:, :-1]) | (blind[:, 1:] != blind[:, :-1])
    turns = ends.copy()
    turns[:, 1:] |= (a[:, 1:] != a[:, :-1]) | (b[:, 1:] != b[:, :-1])
    starts = [[0] for _ in range(entries)]
    for entry, query in np.argwhere(turns).tolist():
        # a step unlike the one before ends a run, unless it is the first step of its run
        if query > starts[entry][-1] or ends[entry, query]:
            starts[entry].append(query + 1)
    return [
        [
            Run(
                start,
                stop,
                int(lows[entry, start]),
                int(highs[entry, start]),
                (int(a[entry, start]), int(b[entry, start])) if stop - start > 1 else (0, 0),
                bool(fulls[entry, start]),
            )
            for start, stop in zip(own, [*own[1:], queries], strict=True)
            if queries and not blind[entry, start]
        ]
        for entry, own in enumerate(starts)
    ]


def pieces(runs: Sequence[Run], block: int) -> Iterator[Sequence[Run]]:
    """Long runs alone; short ones together with their neighbours, within a block of queries."""
    short: list[Run] = []
    for run in runs:
        if short and (run.size >= SHORT or run.stop - short[0].start > block):
            yield short
            short = []
        if run.size >= SHORT:
            yield [run]
        else:
            short.append(run)
    if short:
        yield short
