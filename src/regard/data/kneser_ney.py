"""Probabilities of sequences from counted n-grams."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

START, END = object(), object()

Gram = tuple[Hashable, ...]


class _Level(NamedTuple):
    """The n-grams of one length."""

    counts: Counter[Gram]
    contexts: dict[Gram, tuple[int, int]]  # occurrences, and how many tokens were seen after it
    discount: float


class KneserNey:
    """An n-gram model with interpolated Kneser–Ney smoothing. Ney et al. 1994; Chen & Goodman 1999.

        p(w | h) = max(c(h w) - d, 0) / c(h) + d · n(h) / c(h) · p(w | h without its first token)

    n(h) is the number of tokens seen after h, and d = (n₁ + 1) / (n₁ + 2 n₂ + 2) of the n-grams
    seen once and twice, below 1 however few there are, and at most `discount`. Shorter n-grams
    count the distinct tokens before them: a token that follows one context only is not likely
    after others.

    >>> model = KneserNey([("a", "b"), ("a", "c")], order=2)
    >>> model.log_probability(("a", "b")) > model.log_probability(("b", "a"))
    True

    Args:
        sequences: of any hashable tokens
        order: length of the longest n-grams, 1 or more
        discount: the largest one, above 0 and at most 1; a small one trusts what was seen once
    """

    def __init__(
        self, sequences: Iterable[Sequence[Hashable]], order: int, *, discount: float = 1.0
    ) -> None:
        if order < 1:
            raise ValueError(f"order should be 1 or more, got {order}")
        if not 0 < discount <= 1:
            raise ValueError(f"discount should be above 0 and at most 1, got {discount}")
        longest: Counter[Gram] = Counter()
        for sequence in sequences:
            longest.update(self._grams(sequence, order))
        counts = [longest]
        for _ in range(order - 1):
            counts.append(Counter(gram[1:] for gram in counts[-1]))
        self._levels = [_level(each, discount) for each in reversed(counts)]
        self.order, self._unseen = order, 1 / (len(counts[-1]) + 1)

    def log_probability(self, sequence: Sequence[Hashable]) -> float:
        """Natural logarithm of the probability of a sequence and its end."""
        grams = self._grams(sequence, self.order)
        return sum(math.log(self.probability(gram[:-1], gram[-1])) for gram in grams)

    def probability(self, context: Gram, token: Hashable) -> float:
        """Of a token after the `order - 1` tokens before it; all tokens never seen share one."""
        found = self._unseen
        for length, (counts, contexts, discount) in enumerate(self._levels):
            known = context[len(context) - length :]
            if known not in contexts:
                break
            total, kinds = contexts[known]
            own = max(counts[*known, token] - discount, 0)
            found = (own + discount * kinds * found) / total
        return found

    @staticmethod
    def _grams(sequence: Sequence[Hashable], order: int) -> Iterable[Gram]:
        padded = (START,) * (order - 1) + tuple(sequence) + (END,)
        return (padded[last - order + 1 : last + 1] for last in range(order - 1, len(padded)))


def _level(counts: Counter[Gram], discount: float) -> _Level:
    contexts: dict[Gram, tuple[int, int]] = {}
    for gram, count in counts.items():
        total, kinds = contexts.get(gram[:-1], (0, 0))
        contexts[gram[:-1]] = total + count, kinds + 1
    how_often = Counter(counts.values())
    once, twice = how_often[1], how_often[2]
    return _Level(counts, contexts, min(discount, (once + 1) / (once + 2 * twice + 2)))
