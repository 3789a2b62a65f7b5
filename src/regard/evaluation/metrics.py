"""Metrics of predicted texts, with confidence intervals: error rates, exact match, BLEU, chrF."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.evaluation.edits import References, Split, closest, distance

SAMPLES = 1000
CONFIDENCE = 0.95


class Metric(NamedTuple):
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class CorpusScore(NamedTuple):
    """A corpus metric from 0 to 100, and sacrebleu's signature of how it was computed."""

    metric: Metric
    signature: str


class Rate(NamedTuple):
    """A ratio of sums over sentences, Σ counts / Σ totals, kept by sentence for resampling."""

    counts: np.ndarray  # (sentences,)
    totals: np.ndarray  # (sentences,)

    @property
    def value(self) -> float:
        """The ratio over all sentences; a total of 0 counts as 1."""
        return float(self.counts.sum() / max(self.totals.sum(), 1.0))


def exact_match(predictions: Sequence[str], references: References) -> Rate:
    """Share of the predictions that are equal to one of their references.

    >>> exact_match(["a", "b"], [["a"], ["c", "d"]]).value
    0.5
    """
    _check(predictions, references)
    right = [text in accepted for text, accepted in zip(predictions, references, strict=True)]
    return Rate(np.array(right, dtype=float), np.ones(len(right)))


def error_rate(
    predictions: Sequence[str], references: References, *, split: Split = str.split
) -> Rate:
    """Edits divided by the length of the closest reference.

    With words this is the word error rate, with characters the character error rate, with
    phonemes the phoneme error rate. If all references are empty, the length counts as 1.

    >>> error_rate(["a x c"], [["a b c d", "a b c"]]).value == 1 / 3
    True

    Args:
        predictions: texts
        references: of each prediction
        split: of a text into words, characters or phonemes
    """
    _check(predictions, references)
    errors, lengths = [], []
    for text, accepted in zip(predictions, references, strict=True):
        reference = split(closest(text, accepted, split))
        errors.append(distance(split(text), reference))
        lengths.append(len(reference))
    return Rate(np.array(errors, dtype=float), np.array(lengths, dtype=float))


def bootstrap(rate: Rate, *, samples: int = SAMPLES, seed: int = 12345) -> Metric:
    """A rate with its bootstrap interval: sentences are resampled with replacement. Koehn 2004.

    >>> bootstrap(Rate(np.array([0.0, 1.0, 1.0, 1.0]), np.ones(4)))
    Metric(value=0.75, low=0.25, high=1.0)
    """
    size = len(rate.counts)
    if size == 0:
        return Metric(0.0, 0.0, 0.0)
    rng = np.random.default_rng(seed)
    values = np.empty(samples)
    for start in range(0, samples, 64):  # in chunks: memory does not grow with the samples
        index = rng.integers(0, size, (min(64, samples - start), size))
        totals = np.maximum(rate.totals[index].sum(1), 1.0)
        values[start : start + len(index)] = rate.counts[index].sum(1) / totals
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, (tail, 1 - tail))
    return Metric(rate.value, float(low), float(high))


def bleu(
    predictions: Sequence[str], references: References, *, samples: int = SAMPLES, **options: Any
) -> CorpusScore:
    """BLEU of a corpus by sacrebleu. Papineni et al. 2002, Post 2018.

    >>> bleu(["the cat sat on the mat"], [["the cat sat on the mat"]], samples=0).metric.value
    100.0...

    Args:
        predictions: texts, not tokenized
        references: of each prediction
        samples: for the interval; 0 leaves it out
        options: of `sacrebleu.BLEU`, such as lowercase=True or tokenize="none"
    """
    from sacrebleu.metrics import BLEU

    return _corpus_score(BLEU(**options), predictions, references, samples)


def chrf(
    predictions: Sequence[str], references: References, *, samples: int = SAMPLES, **options: Any
) -> CorpusScore:
    """chrF2, the character n-gram F-score of a corpus, by sacrebleu. Popović 2015.

    Args: those of `bleu`, with the options of `sacrebleu.CHRF`
    """
    from sacrebleu.metrics import CHRF

    return _corpus_score(CHRF(**options), predictions, references, samples)


def _corpus_score(
    scorer: Any, predictions: Sequence[str], references: References, samples: int
) -> CorpusScore:
    _check(predictions, references)
    if not predictions:
        raise ValueError("a corpus score needs at least one prediction")
    most = max(map(len, references))
    streams = [[own[n] if n < len(own) else None for own in references] for n in range(most)]
    texts = list(predictions)
    value = low = high = float(scorer.corpus_score(texts, streams).score)
    if samples and len(texts) > 1:
        resampled = scorer.corpus_score(texts, streams, n_bootstrap=samples)
        low, high = resampled._mean - resampled._ci, resampled._mean + resampled._ci
    return CorpusScore(Metric(value, float(low), float(high)), str(scorer.get_signature()))


def _check(predictions: Sequence[str], references: References) -> None:
    for name, texts in (("predictions", predictions), ("references", references)):
        if isinstance(texts, str):
            raise TypeError(f"{name} should be a list, got the string {texts!r}")
    if len(predictions) != len(references):
        raise ValueError(
            "expected as many lists of references as predictions, got "
            f"{len(predictions)} predictions and references for {len(references)}"
        )
    for index, accepted in enumerate(references):
        if isinstance(accepted, str) or not accepted:
            raise ValueError(
                "references should be a list of one or more texts for each prediction, got "
                f"{accepted!r} for prediction {index}"
            )
