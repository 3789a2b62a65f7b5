"""Which known sources begin or end like another one, and how their targets were written."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

WINDOW = 10  # sources that are compared, on either side of the given one in the order of ids

Ids = tuple[int, ...]


class Match(NamedTuple):
    """A known source that begins or ends like the given one."""

    step: int  # 1 if they begin alike, -1 if they end alike: ids[::step] starts with the same ids
    source: Ids
    shared: int  # how many ids they have in common there


class SimilarPairs:
    """Pairs of ids, found by the beginning and by the end of their sources.

    >>> pairs = SimilarPairs([((1, 2, 3), (7, 8)), ((4, 3), (9, 8)), ((5,), (6,))])
    >>> [match.source for match in pairs.find((1, 2, 4, 3))]
    [(1, 2, 3), (4, 3)]
    >>> pairs.agreement((1, 2, 4, 3), [(7, 9, 8), (5, 8)])  # 2/4 · 1 + 2/4 · 2 and 2/4 · 1
    [1.5, 0.5]

    Args:
        pairs: ids of sources and targets; a source may have several targets
    """

    def __init__(self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        self.targets: dict[Ids, list[Ids]] = {}
        for source, target in pairs:
            if source:
                self.targets.setdefault(tuple(source), []).append(tuple(target))
        self._sorted = sorted(self.targets), sorted(ids[::-1] for ids in self.targets)

    def find(self, source: Sequence[int]) -> Iterator[Match]:
        """The sources that have the longest beginning and the longest end in common with one.

        Of several the shortest is taken. The source itself is passed over; an empty one has none.
        """
        for step, known in zip((1, -1), self._sorted if source else (), strict=False):
            wanted = tuple(source)[::step]
            place = bisect_left(known, wanted)
            near = known[max(0, place - WINDOW) : place + WINDOW + 1]
            ranked = [(common(wanted, other), -len(other), other) for other in near]
            others = [one for one in ranked if one[2] != wanted]
            if others:
                shared, _, best = max(others, key=itemgetter(0, 1))
                yield Match(step, best[::step], shared)

    def agreement(self, source: Sequence[int], targets: Iterable[Sequence[int]]) -> list[float]:
        """How far each of some targets agrees with those of similar sources.

            Σ (share of the source that is in common) · (ids of the target that are in common)

        over the source that begins alike and the one that ends alike. If one of these has several
        targets, the one that agrees most counts.
        """
        matches = list(self.find(source))
        return [
            sum(
                match.shared / len(source) * self._agreed(match, target[:: match.step])
                for match in matches
            )
            for target in targets
        ]

    def _agreed(self, match: Match, target: Sequence[int]) -> int:
        known = self.targets[match.source]
        return max(common(target, other[:: match.step]) for other in known)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids two sequences have in common at their beginnings."""
    for place, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return place
    return min(len(a), len(b))
