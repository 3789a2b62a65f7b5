"""BLEU and chrF as sacrebleu computes them, with the signature that says how."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.evaluation.interval import SAMPLES, Figure
from regard.evaluation.rates import References


class Overlap(NamedTuple):
    """A corpus score from 0 to 100, and how it was computed."""

    figure: Figure
    signature: str


def bleu(
    written: Sequence[str], wanted: References, *, samples: int = SAMPLES, **how: Any
) -> Overlap:
    """BLEU of a corpus. Papineni et al. 2002, as in Post 2018.

    >>> bleu(["the cat sat on the mat"], [["the cat sat on the mat"]], samples=0).figure.value
    100.0...

    Args:
        written: texts, not tokenized
        wanted: references of each
        samples: for the interval; 0 leaves it out
        how: of `sacrebleu.BLEU`, such as lowercase=True or tokenize="none"
    """
    from sacrebleu.metrics import BLEU

    return _score(BLEU(**how), written, wanted, samples)


def chrf(
    written: Sequence[str], wanted: References, *, samples: int = SAMPLES, **how: Any
) -> Overlap:
    """chrF2 of a corpus, by sequences of characters. Popović 2015.

    Args: those of `bleu`, with those of `sacrebleu.CHRF`
    """
    from sacrebleu.metrics import CHRF

    return _score(CHRF(**how), written, wanted, samples)


def _score(metric: Any, written: Sequence[str], wanted: References, samples: int) -> Overlap:
    if not written:
        raise ValueError("a corpus score needs one text or more")
    most = max(map(len, wanted))
    streams = [[own[n] if n < len(own) else None for own in wanted] for n in range(most)]
    texts = list(written)
    score = metric.corpus_score(texts, streams)
    value = low = high = float(score.score)
    if samples and len(texts) > 1:
        drawn = metric.corpus_score(texts, streams, n_bootstrap=samples)
        low, high = drawn._mean - drawn._ci, drawn._mean + drawn._ci
    return Overlap(Figure(value, float(low), float(high)), str(metric.get_signature()))
