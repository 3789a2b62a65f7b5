"""How much of what was written is right, sentence by sentence, so that parts can be resampled."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from regard.evaluation.edits import distance

References = Sequence[Sequence[str]]
"""Of each sentence what would be right: one text or more."""


class Rate(NamedTuple):
    """A share made of sums over sentences: Σ parts / Σ wholes."""

    parts: np.ndarray  # (sentences,)
    wholes: np.ndarray  # (sentences,)

    @property
    def value(self) -> float:
        """The share of all sentences together; nothing of nothing is 0."""
        whole = self.wholes.sum()
        return float(self.parts.sum() / whole) if whole else 0.0


def exact_match(written: Sequence[str], wanted: References) -> Rate:
    """Which sentences are one of their references.

    >>> exact_match(["a", "b"], [["a"], ["c", "d"]]).value
    0.5
    """
    _check(written, wanted)
    right = [text in references for text, references in zip(written, wanted, strict=True)]
    return Rate(np.array(right, dtype=float), np.ones(len(right)))


def error_rate(
    written: Sequence[str], wanted: References, *, cut: Callable[[str], Sequence[str]] = str.split
) -> Rate:
    """Edits over the length of the reference, with the reference that is nearest in that sense.

    With words this is the word error rate, with letters the character error rate, with phonemes
    the phoneme error rate.

    >>> error_rate(["a x c"], [["a b c d", "a b c"]]).value == 1 / 3
    True

    Args:
        written: texts
        wanted: references of each
        cut: a text to its words, letters or phonemes
    """
    _check(written, wanted)
    parts, wholes = [], []
    for text, references in zip(written, wanted, strict=True):
        own = cut(text)
        pairs = [(distance(own, cut(other)), len(cut(other))) for other in references]
        part, whole = min(pairs, key=lambda pair: pair[0] / max(pair[1], 1))
        parts.append(part)
        wholes.append(whole)
    return Rate(np.array(parts, dtype=float), np.array(wholes, dtype=float))


def _check(written: Sequence[str], wanted: References) -> None:
    if len(written) != len(wanted):
        raise ValueError(
            f"there should be references for each text, got {len(written)} texts and references "
            f"for {len(wanted)}"
        )
    for number, references in enumerate(wanted):
        if isinstance(references, str) or not references:
            raise ValueError(
                f"references should be lists of one text or more, got {references!r} for text "
                f"{number}"
            )
