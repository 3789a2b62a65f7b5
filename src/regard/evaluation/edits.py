"""Edit distance between sequences, and the errors of a model that it reveals."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

References = Sequence[Sequence[str]]
"""One or more acceptable texts for each prediction."""

Split = Callable[[str], Sequence[str]]
"""Splits a text into the words, characters or phonemes that are compared."""


class Edit(NamedTuple):
    """A difference between a reference and a prediction; "" stands for a missing element."""

    reference: str
    prediction: str


class Mistake(NamedTuple):
    """A prediction that matches none of its references."""

    number: int  # position of the prediction
    prediction: str
    reference: str  # the closest one
    rate: float  # edits divided by the length of that reference


def distance(prediction: Sequence[Any], reference: Sequence[Any]) -> int:
    """Minimum number of insertions, deletions and substitutions. Levenshtein 1966.

    >>> distance("sitting", "kitten")
    3
    """
    return int(_table(prediction, reference)[-1, -1])


def edits(prediction: Sequence[str], reference: Sequence[str]) -> list[Edit]:
    """One shortest list of edits between two sequences, from left to right.

    >>> edits("sitting", "kitten")[:2]
    [Edit(reference='k', prediction='s'), Edit(reference='e', prediction='i')]
    """
    table = _table(prediction, reference)
    found = []
    i, j = len(prediction), len(reference)
    while i or j:
        cost = table[i, j]
        same = i > 0 and j > 0 and prediction[i - 1] == reference[j - 1]
        if i and j and cost == table[i - 1, j - 1] + (not same):
            i, j = i - 1, j - 1
            if not same:
                found.append(Edit(reference[j], prediction[i]))
        elif i and cost == table[i - 1, j] + 1:
            i -= 1
            found.append(Edit("", prediction[i]))
        else:
            j -= 1
            found.append(Edit(reference[j], ""))
    return found[::-1]


def closest(prediction: str, references: Sequence[str], split: Split = str.split) -> str:
    """The reference with the lowest error rate."""

    def rate(reference: str) -> float:
        length = len(split(reference))
        return distance(split(prediction), split(reference)) / max(length, 1)

    return min(references, key=rate) if len(references) > 1 else references[0]


def worst(
    predictions: Sequence[str], references: References, *, split: Split = str.split, count: int = 10
) -> list[Mistake]:
    """The predictions with the highest error rates, the worst first; exact ones are left out."""
    mistakes = []
    for index, (text, acceptable) in enumerate(zip(predictions, references, strict=True)):
        reference = closest(text, acceptable, split)
        errors = distance(split(text), split(reference))
        if errors:
            rate = errors / max(len(split(reference)), 1)
            mistakes.append((rate, errors, Mistake(index, text, reference, rate)))
    mistakes.sort(key=lambda row: row[:2], reverse=True)
    return [mistake for _, _, mistake in mistakes[:count]]


def confusions(
    predictions: Sequence[str], references: References, *, split: Split = str.split, count: int = 10
) -> list[tuple[Edit, int]]:
    """The most frequent edits between predictions and their closest references.

    >>> confusions(["a x", "b x"], [["a y"], ["b y"]])
    [(Edit(reference='y', prediction='x'), 2)]
    """
    found: Counter[Edit] = Counter()
    for text, acceptable in zip(predictions, references, strict=True):
        found.update(edits(split(text), split(closest(text, acceptable, split))))
    return found.most_common(count)


def _table(prediction: Sequence[Any], reference: Sequence[Any]) -> np.ndarray:
    """Distances of all prefixes, (len(prediction) + 1, len(reference) + 1)."""
    numbers = {item: n for n, item in enumerate(dict.fromkeys((*prediction, *reference)))}
    columns = np.array([numbers[item] for item in reference], dtype=np.int64)
    steps = np.arange(len(columns) + 1)
    table = np.empty((len(prediction) + 1, len(steps)), dtype=np.int64)
    table[0] = steps
    for i, item in enumerate(prediction, 1):
        above = table[i - 1]
        row = above + 1  # an insertion
        row[1:] = np.minimum(row[1:], above[:-1] + (columns != numbers[item]))
        # a deletion costs one a step, so the least of (row - steps) so far is carried on
        table[i] = np.minimum.accumulate(row - steps) + steps
    return table
