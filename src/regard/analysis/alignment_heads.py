"""Which head is the one that aligns, and whether it is a step off."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from regard.analysis.alignment import AlignmentScore, alignment_error, links
from regard.analysis.pharaoh import Gold


class AlignmentHead(NamedTuple):
    """A head and how well it aligns."""

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
        shifts: how many rows a map may be off; 0 before others where they are equal
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


def best_shift(
    maps: Sequence[Tensor], gold: Sequence[Gold], *, shifts: Sequence[int] = (-1, 0, 1)
) -> int:
    """By how many rows a head's maps are off: the shift with the lowest alignment error.

    Args:
        maps: (target, source) of each sentence
        gold: for each sentence
    """
    whole = [{"": map[None]} for map in maps]
    return rank_heads(whole, gold, shifts=shifts)[0].shift


def _score(
    maps: Sequence[Mapping[str, Tensor]], gold: Sequence[Gold], name: str, head: int, shift: int
) -> AlignmentScore:
    return alignment_error([links(shifted(each[name][head], shift)) for each in maps], gold)
