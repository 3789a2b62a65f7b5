"""The text that the others agree with most, as minimum Bayes risk decoding chooses it."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

LENGTHS = range(1, 7)  # of character n-grams, as in chrF
BETA = 2  # how many times as much recall counts as precision, as in chrF

Grams = list[Counter[str]]


def consensus(texts: Sequence[str]) -> int:
    """Return the index of the text with the highest mean chrF to all texts.

    With samples of a model this is minimum Bayes risk decoding: the translation that is expected to
    be the best if the true one is distributed as the model says. Eikema & Aziz 2020.

    >>> consensus(["it is raining", "the cat sleeps", "a cat sleeps", "the cat slept"])
    1

    Args:
        texts: samples; a text that occurs several times counts as often
    """
    if not texts:
        raise ValueError("consensus needs at least one text")
    counts = Counter(texts)
    grams = {text: _grams(text) for text in counts}

    def agreement(text: str) -> float:
        return sum(count * _f_score(grams[text], grams[other]) for other, count in counts.items())

    return texts.index(max(counts, key=agreement))


def _grams(text: str) -> Grams:
    """The character n-grams of a text without its spaces, by length."""
    letters = "".join(text.split())
    return [
        Counter(letters[start : start + n] for start in range(len(letters) - n + 1))
        for n in LENGTHS
    ]


def _f_score(text: Grams, reference: Grams) -> float:
    """chrF, from 0 to 1: precision and recall are means over the lengths that both texts have."""
    precisions, recalls = [], []
    for own, wanted in zip(text, reference, strict=True):
        if own and wanted:
            shared = (own & wanted).total()
            precisions.append(shared / own.total())
            recalls.append(shared / wanted.total())
    if not any(precisions):
        return 0.0
    precision, recall = fmean(precisions), fmean(recalls)
    return (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
