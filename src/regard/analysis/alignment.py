"""Word alignments: read off maps, and scored against gold alignments."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from regard.analysis.alignment_file import Gold, Links
from regard.analysis.heads import checked


class AlignmentScore(NamedTuple):
    """How links compare with the gold alignment. Och & Ney 2003."""

    error: float  # AER, 0 is perfect
    precision: float  # of the links found, those that are possible
    recall: float  # of the sure links, those found


def links(weights: Tensor, *, threshold: float | None = None) -> Links:
    """The alignment of a map: each target word with its best source word.

    >>> import torch
    >>> sorted(links(torch.tensor([[0.9, 0.1], [0.4, 0.6]])))
    [(0, 0), (1, 1)]
    >>> sorted(links(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), threshold=0.35))
    [(0, 0), (0, 1), (1, 1)]

    Args:
        weights: target × source, (M, N)
        threshold: take every weight of at least this, instead of the best of each row

    Returns: pairs (source, target); none for a row that attends to nothing
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

    Returns: the score over all sentences together
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


class AlignmentHead(NamedTuple):
    """A head and its alignment score."""

    name: str
    head: int
    shift: int  # by how many rows its map was moved up to fit best
    score: AlignmentScore


def shifted(weights: Tensor, rows: int) -> Tensor:
    """The map with row i + rows in place of row i, and zeros where there is none.

    A decoder that reads yₜ and writes yₜ₊₁ may attend to the translation of what it reads, or of
    what it writes: then its map is one row off.

    >>> import torch
    >>> shifted(torch.tensor([[0.2, 0.8], [1.0, 0.0]]), 1)
    tensor([[1., 0.],
            [0., 0.]])
    """
    M = weights.shape[-2]
    kept = weights[..., max(rows, 0) : max(M + min(rows, 0), 0), :]
    missing = M - kept.shape[-2]
    return F.pad(kept, (0, 0, 0, missing) if rows > 0 else (0, 0, missing, 0))


def rank_heads(
    maps: Sequence[Mapping[str, Tensor]], gold: Sequence[Gold], *, shifts: Sequence[int] = (0, 1)
) -> list[AlignmentHead]:
    """All heads by their alignment error, the best first, each at its best shift.

    >>> import torch
    >>> map = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    >>> gold = Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))
    >>> best, second = rank_heads([{"cross": map}], [gold])
    >>> best.head, best.shift, best.score.error
    (1, 0, 0.0)

    Args:
        maps: for each sentence, maps (heads, target, source) by name, of words
        gold: for each sentence
        shifts: numbers of rows that a map may be off; the smallest wins a tie
    """
    if len(maps) != len(gold) or not maps:
        raise ValueError(f"there are maps of {len(maps)} sentences and {len(gold)} gold alignments")
    found = []
    for name, first in maps[0].items():
        for head in range(len(first)):
            best = min(
                (
                    AlignmentHead(name, head, shift, _score(maps, gold, name, head, shift))
                    for shift in sorted(shifts, key=abs)
                ),
                key=lambda each: each.score.error,
            )
            found.append(best)
    return sorted(found, key=lambda each: (each.score.error, -each.score.recall))


def _score(
    maps: Sequence[Mapping[str, Tensor]], gold: Sequence[Gold], name: str, head: int, shift: int
) -> AlignmentScore:
    return alignment_error([links(shifted(each[name][head], shift)) for each in maps], gold)
