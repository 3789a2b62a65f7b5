"""Edits between two sequences: how many at least, and which."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Edit(NamedTuple):
    """A place where what was written differs from what was wanted; "" if nothing stands there."""

    wanted: str
    written: str


def distance(written: Sequence[Any], wanted: Sequence[Any]) -> int:
    """The fewest insertions, deletions and substitutions between two sequences. Levenshtein 1966.

    >>> distance("sitting", "kitten")
    3
    """
    return int(_table(written, wanted)[-1, -1])


def edits(written: Sequence[str], wanted: Sequence[str]) -> list[Edit]:
    """The edits of one shortest way, from left to right; what is equal is left out.

    >>> edits("sitting", "kitten")
    [Edit(wanted='k', written='s'), Edit(wanted='e', written='i'), Edit(wanted='', written='g')]
    """
    table = _table(written, wanted)
    found = []
    i, j = len(written), len(wanted)
    while i or j:
        here = table[i, j]
        same = i > 0 and j > 0 and written[i - 1] == wanted[j - 1]
        if i and j and here == table[i - 1, j - 1] + (not same):
            i, j = i - 1, j - 1
            if not same:
                found.append(Edit(wanted[j], written[i]))
        elif i and here == table[i - 1, j] + 1:
            i -= 1
            found.append(Edit("", written[i]))
        else:
            j -= 1
            found.append(Edit(wanted[j], ""))
    return found[::-1]


def _table(written: Sequence[Any], wanted: Sequence[Any]) -> np.ndarray:
    """Distances of all beginnings, (len(written) + 1, len(wanted) + 1)."""
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys((*written, *wanted)))}
    rows = [numbers[piece] for piece in written]
    columns = np.array([numbers[piece] for piece in wanted], dtype=np.int64)
    steps = np.arange(len(columns) + 1)
    table = np.empty((len(rows) + 1, len(steps)), dtype=np.int64)
    table[0] = steps
    for i, piece in enumerate(rows, 1):
        before = table[i - 1]
        row = before + 1  # an insertion
        row[1:] = np.minimum(row[1:], before[:-1] + (columns != piece))
        # a deletion costs one a step, so the least of (row - steps) so far is carried on
        table[i] = np.minimum.accumulate(row - steps) + steps
    return table
