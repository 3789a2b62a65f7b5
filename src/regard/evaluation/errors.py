"""Errors shown, not only counted: the worst sentences and what is mistaken for what."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from regard.evaluation.edits import Edit, distance, edits
from regard.evaluation.rates import Rate, References


class Mistake(NamedTuple):
    """A sentence that was written wrongly."""

    number: int
    written: str
    wanted: str  # the nearest of its references
    rate: float  # edits over the length of that


def worst(
    written: Sequence[str],
    wanted: References,
    errors: Rate,
    *,
    cut: Callable[[str], Sequence[str]] = str.split,
    count: int = 10,
) -> list[Mistake]:
    """The sentences with the highest error rates, the worst first; right ones are left out.

    Args:
        errors: of each sentence, from `error_rate` with the same `cut`
        count: how many at most
    """
    each = errors.parts / np.maximum(errors.wholes, 1.0)
    order = np.lexsort((-errors.parts, -each))[:count]
    return [
        Mistake(int(n), written[n], _nearest(written[n], wanted[n], cut), float(each[n]))
        for n in order
        if errors.parts[n] > 0
    ]


def confusions(
    written: Sequence[str],
    wanted: References,
    *,
    cut: Callable[[str], Sequence[str]] = str.split,
    count: int = 10,
) -> list[tuple[Edit, int]]:
    """The most frequent edits between texts and their nearest references.

    >>> confusions(["a x", "b x"], [["a y"], ["b y"]])
    [(Edit(wanted='y', written='x'), 2)]
    """
    found: Counter[Edit] = Counter()
    for text, references in zip(written, wanted, strict=True):
        found.update(edits(cut(text), cut(_nearest(text, references, cut))))
    return found.most_common(count)


def _nearest(text: str, references: Sequence[str], cut: Callable[[str], Sequence[str]]) -> str:
    def rate(other: str) -> float:
        return distance(cut(text), cut(other)) / max(len(cut(other)), 1)

    return min(references, key=rate) if len(references) > 1 else references[0]
