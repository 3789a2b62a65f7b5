"""How likely a pair is, by n-grams of what each token of its source was written as."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.kneser_ney import KneserNey

LONGEST = 2  # target ids that one source id may stand for
ORDER = 9  # length of the longest n-grams
DISCOUNT = 0.6  # the largest one: nearly all long n-grams are seen once, and relatives share them
SAMPLE = 20_000  # pairs that pieces are learned from; the n-grams are of all pairs
ROUNDS = 10  # of expectation maximization
FIRST = (0.3, 1.0, 0.05)  # weight of a piece with 0, 1 or 2 target ids before the first round
BUCKETS = 2**22  # probabilities of pieces; beyond that number, pieces share them
LEFT_OVER = -1  # stands for the source id of target ids that no source id is left for
LOWEST = 1e-12  # probability of a piece that was not seen

Pair = tuple[Sequence[int], Sequence[int]]
Piece = tuple[int, ...]
"""A source id, and the target ids that it was written as."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class _SameShape(NamedTuple):
    """Pairs with sources of length M and targets of length N."""

    places: list[int]  # of the pairs
    sources: Integers  # (pairs, M)
    targets: Integers  # (pairs, N)


class JointNgrams:
    """A joint-sequence model: n-grams of aligned pieces of pairs. Bisani & Ney 2008.

    Every source id is written as 0, 1 or 2 target ids, in order; as which ones is learned by
    expectation maximization. A pair then is a sequence of pieces, whose n-grams are counted.
    *PHONE* is (P, F) (H) (O, OW) (N, N) (E).

    >>> ngrams = JointNgrams([((1, 2), (7, 8)), ((1, 3), (7, 9)), ((2, 3, 4), (8, 9))])
    >>> ngrams.align([((1, 3, 4), (7, 9))])
    [[(1, 7), (3, 9), (4,)]]
    >>> likely, unlikely = ngrams.log_probabilities([((1, 2, 4), (7, 8)), ((1, 2, 4), (8, 9))])
    >>> likely > unlikely
    True

    Args:
        pairs: ids of sources and targets
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        pairs = list(pairs)
        self._base = 2 + max((number for _, target in pairs for number in target), default=0)
        groups = list(_by_shape(pairs[:: 1 + len(pairs) // SAMPLE]))
        weights: Floats | None = None
        for _ in range(ROUNDS):
            counts = np.zeros(BUCKETS)
            for group in groups:
                self._count(group, weights, counts)
            weights = counts / max(counts.sum(), LOWEST)
        assert weights is not None
        self._logarithms: Floats = np.log(weights + LOWEST)
        self._model = KneserNey(self.align(pairs), ORDER, discount=DISCOUNT)

    def log_probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        """Natural logarithm of the probability of each pair, source and target together."""
        return [self._model.log_probability(pieces) for pieces in self.align(pairs)]

    def align(self, pairs: Sequence[Pair]) -> list[list[Piece]]:
        """The most likely pieces of each pair; target ids that are too many come last."""
        found: list[list[Piece]] = [[] for _ in pairs]
        for group in _by_shape(pairs):
            for place, sizes in zip(group.places, self._sizes(group).tolist(), strict=True):
                source, target = pairs[place]
                ends = np.cumsum(sizes).tolist()
                found[place] = [
                    (number, *target[end - size : end])
                    for number, size, end in zip(source, sizes, ends, strict=True)
                ]
                rest = target[ends[-1] if ends else 0 :]
                found[place] += [(LEFT_OVER, number) for number in rest]
        return found

    def _count(self, group: _SameShape, weights: Floats | None, counts: Floats) -> None:
        """Add how often each piece is expected to occur, by the forward–backward algorithm."""
        pieces = self._pieces(group)
        pairs, length = group.sources.shape
        width = group.targets.shape[1] + 1
        if not length:
            return
        likely = [
            np.full(piece.shape, FIRST[size]) if weights is None else weights[piece]
            for size, piece in enumerate(pieces)
        ]
        forward = np.zeros((length + 1, pairs, width))  # [i, :, j]: i and j ids have been read
        forward[0, :, 0] = 1.0
        scale = np.ones((length + 1, pairs, 1))  # keeps long products from underflow
        for i in range(length):
            for size, weight in enumerate(likely):
                forward[i + 1, :, size:] += forward[i, :, : width - size] * weight[:, i]
            scale[i + 1] = forward[i + 1].sum(1, keepdims=True).clip(LOWEST)
            forward[i + 1] /= scale[i + 1]
        backward = np.zeros((pairs, width))
        end = forward[length, :, -1]
        backward[:, -1] = np.divide(1.0, end, out=np.zeros(pairs), where=end > 0)
        for i in reversed(range(length)):
            backward /= scale[i + 1]
            before = np.zeros((pairs, width))
            for size, weight in enumerate(likely):
                after = weight[:, i] * backward[:, size:]
                before[:, : width - size] += after
                np.add.at(counts, pieces[size][:, i], forward[i, :, : width - size] * after)
            backward = before

    def _sizes(self, group: _SameShape) -> Integers:
        """How many target ids each source id was written as, (pairs, M), by Viterbi's algorithm."""
        pieces = self._pieces(group)
        pairs, length = group.sources.shape
        width = group.targets.shape[1] + 1
        best = np.full((pairs, width), -np.inf)
        best[:, 0] = 0.0
        chosen = np.zeros((length, pairs, width), dtype=np.int64)
        for i in range(length):
            reached = np.full((len(pieces), pairs, width), -np.inf)
            for size, piece in enumerate(pieces):
                reached[size, :, size:] = best[:, : width - size] + self._logarithms[piece[:, i]]
            chosen[i], best = reached.argmax(0), reached.max(0)
        sizes = np.zeros((pairs, length), dtype=np.int64)
        rows, end = np.arange(pairs), np.full(pairs, width - 1)
        for i in reversed(range(length)):
            sizes[:, i] = chosen[i, rows, end]
            end -= sizes[:, i]
        return sizes

    def _pieces(self, group: _SameShape) -> list[Integers]:
        """For each size the buckets of pieces, (pairs, M, N + 1 - size), by where they end."""
        written = np.zeros((len(group.places), group.targets.shape[1] + 1), dtype=np.int64)
        source = group.sources[:, :, None] * self._base**LONGEST
        found = [(source + written[:, None]) % BUCKETS]
        for size in range(1, min(LONGEST, group.targets.shape[1]) + 1):
            written = written[:, :-1] * self._base + group.targets[:, size - 1 :] + 1
            found.append((source + written[:, None]) % BUCKETS)
        return found


def _by_shape(pairs: Sequence[Pair]) -> Iterator[_SameShape]:
    """The pairs by the lengths of their ids; targets that are too long are cut."""
    places: dict[tuple[int, int], list[int]] = {}
    for place, (source, target) in enumerate(pairs):
        shape = len(source), min(len(target), LONGEST * len(source))
        places.setdefault(shape, []).append(place)
    for (length, width), some in places.items():
        sources = np.array([pairs[place][0] for place in some], dtype=np.int64)
        targets = np.array([pairs[place][1][:width] for place in some], dtype=np.int64)
        yield _SameShape(
            some, sources.reshape(len(some), length), targets.reshape(len(some), width)
        )
