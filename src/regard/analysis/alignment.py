"""Which word is the translation of which, read off a map, and how well."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from regard.analysis.pharaoh import Gold, Links
from regard.analysis.rows import checked


class AlignmentScore(NamedTuple):
    """How links compare with what people drew. Och & Ney 2003."""

    error: float  # AER, 0 is perfect
    precision: float  # of the links found, those that are possible
    recall: float  # of the sure links, those found


def links(weights: Tensor, *, threshold: float | None = None) -> Links:
    """The alignment that a map shows: each target word to its best source word.

    >>> import torch
    >>> sorted(links(torch.tensor([[0.9, 0.1], [0.4, 0.6]])))
    [(0, 0), (1, 1)]
    >>> sorted(links(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), threshold=0.35))
    [(0, 0), (0, 1), (1, 1)]

    Args:
        weights: target × source, (M, N)
        threshold: take every weight of at least this, instead of the best of each row

    Returns: pairs (source, target); a row that attends to nothing has none
    """
    if weights.dim() != 2:
        raise ValueError(f"an alignment is read off one map (M, N), got {tuple(weights.shape)}")
    weights = checked(weights)
    if threshold is not None:
        found = (weights >= threshold) & (weights > 0)
        return frozenset((j, i) for i, j in found.nonzero().tolist())
    if not weights.numel():
        return frozenset()
    best, place = weights.max(-1)
    return frozenset((int(j), i) for i, j in enumerate(place) if best[i] > 0)


def alignment_error(
    found: Sequence[Iterable[tuple[int, int]]], gold: Sequence[Gold]
) -> AlignmentScore:
    """The alignment error rate of a corpus. Och & Ney 2003, eq. 21-24.

        precision = |A ∩ P| / |A|,  recall = |A ∩ S| / |S|
        AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    >>> gold = Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
    >>> alignment_error([{(0, 0), (1, 1)}], [gold])
    AlignmentScore(error=0.0, precision=1.0, recall=1.0)

    Args:
        found: A, the links of each sentence
        gold: S and P of each sentence

    Returns: numbers over all sentences together
    """
    if len(found) != len(gold):
        raise ValueError(f"there are {len(found)} alignments for {len(gold)} gold ones")
    sure = possible = answers = expected = 0
    for some, (certain, allowed) in zip(found, gold, strict=True):
        answer = frozenset(some)
        sure += len(answer & certain)
        possible += len(answer & (allowed | certain))
        answers += len(answer)
        expected += len(certain)
    total = answers + expected
    return AlignmentScore(
        1 - (sure + possible) / total if total else 0.0,
        possible / answers if answers else 1.0,
        sure / expected if expected else 1.0,
    )
