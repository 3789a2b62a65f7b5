"""What a search gives back: tokens, how likely they are, and where the model looked."""

from typing import NamedTuple

from torch import Tensor

from regard.data.batch import EOS


class Hypothesis(NamedTuple):
    """One continuation of a sentence.

    >>> best = Hypothesis((7, 5, 2), -1.5)
    >>> best.finished, round(best.ranked(penalty=1.0), 3)
    (True, -1.125)
    """

    tokens: tuple[int, ...]  # what was emitted; the end is the last of them, if it was reached
    score: float  # the model's log-probability of these tokens, in nats
    maps: dict[str, Tensor] | None = None  # by module, (heads, len(tokens), S); None if not asked

    @property
    def finished(self) -> bool:
        """Whether the end was reached, and not only the limit."""
        return bool(self.tokens) and self.tokens[-1] == EOS

    def ranked(self, penalty: float) -> float:
        """The score by which a beam sorts: score / ((5 + length) / 6)^penalty. Wu 2016, eq. 14."""
        return self.score / float(longer(len(self.tokens), penalty))


def longer(length: float, penalty: float) -> float:
    """What a score is divided by, so that length costs less. Wu et al. 2016, eq. 14.

    >>> longer(1, 0.6), longer(7, 1.0)
    (1.0, 2.0)
    """
    return ((5.0 + length) / 6.0) ** penalty


EMPTY = Hypothesis((), 0.0)
"""What an empty source becomes."""
