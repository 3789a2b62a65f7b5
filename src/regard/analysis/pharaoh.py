"""Alignments in the Pharaoh format: "0-0 1-2 2?1", a line for each pair of sentences."""

from collections.abc import Iterable
from typing import NamedTuple

Links = frozenset[tuple[int, int]]
"""Pairs of a source position and a target position, from 0."""

MARKS = {"-": True, "?": False, "p": False}
"""What stands between the two positions of a link: sure, or possible."""


class Gold(NamedTuple):
    """What people drew: links that are sure, and links that are at least possible."""

    sure: Links
    possible: Links  # the sure ones among them


def read_pharaoh(lines: Iterable[str], *, first: int = 0, swap: bool = False) -> list[Gold]:
    """Alignments of sentences, source-target each; `i?j` and `ipj` are possible, `i-j` is sure.

    >>> (gold,) = read_pharaoh(["1-1 2?3"], first=1)
    >>> sorted(gold.sure), sorted(gold.possible)
    ([(0, 0)], [(0, 0), (1, 2)])

    Args:
        lines: one for each pair; an empty line is a pair without links
        first: the number of the first word, 0 or 1
        swap: whether the lines say target-source

    Raises:
        ValueError: with the line and what is wrong in it
    """
    if first not in (0, 1):
        raise ValueError(f"words are counted from 0 or 1, got first={first}")
    return [_gold(line, number, first, swap) for number, line in enumerate(lines, start=1)]


def write_pharaoh(links: Iterable[tuple[int, int]], *, first: int = 0) -> str:
    """Links as a line, in order.

    >>> write_pharaoh({(1, 0), (0, 2)})
    '0-2 1-0'
    """
    return " ".join(f"{source + first}-{target + first}" for source, target in sorted(links))


def _gold(line: str, number: int, first: int, swap: bool) -> Gold:
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for word in line.split():
        mark = next((mark for mark in MARKS if mark in word), None)
        left, _, right = word.partition(mark or "-")
        if mark is None or not (left.isdecimal() and right.isdecimal()):
            raise ValueError(f"line {number}: {word!r} is no link such as 0-1, 0?1 or 0p1")
        pair = int(left) - first, int(right) - first
        if min(pair) < 0:
            raise ValueError(f"line {number}: {word!r} in an alignment that counts from {first}")
        pair = pair[::-1] if swap else pair
        possible.add(pair)
        if MARKS[mark]:
            sure.add(pair)
    return Gold(frozenset(sure), frozenset(possible))
