"""Files of word alignments: Pharaoh, a line for each pair of texts, and NAACL, one for each link.

| format | a pair whose first words are linked surely, and its second ones possibly | counts from |
|---|---|---|
| Pharaoh | `0-0 1?1` or `0-0 1p1` | 0, in some files 1 |
| NAACL | `7 1 1 S` and `7 2 2 P`, on two lines: the pair, source, target | 1 |

NAACL is the format of the shared tasks on word alignment (Mihalcea & Pedersen 2003); a line without
S or P is a sure link, and what follows it is a confidence, which is not used.
"""

from collections.abc import Iterable
from typing import NamedTuple

Links = frozenset[tuple[int, int]]
"""Pairs of a source position and a target position, from 0."""

MARKS = {"-": True, "?": False, "p": False}
"""The marks between the two positions of a Pharaoh link, and whether they mean a sure one."""


class Gold(NamedTuple):
    """The links that annotators drew: sure ones, and those that are at least possible."""

    sure: Links
    possible: Links  # with the sure ones


def read_alignments(lines: Iterable[str], pairs: int, *, first: int = 0) -> list[Gold]:
    """Read a file in the Pharaoh or the NAACL format, which its first link tells apart.

    >>> read_alignments(["0-0", "0-1"], 2) == read_alignments(["1 1 1", "2 1 2"], 2)
    True

    Args:
        lines: of the file
        pairs: the number of pairs of sentences
        first: the number of the first word in a Pharaoh file, 0 or 1

    Raises:
        ValueError: with the number of the line; or if there are more or fewer pairs
    """
    lines = list(lines)
    words = next((line.split() for line in lines if line.strip()), [])
    if len(words) >= 3 and all(word.isdecimal() for word in words[:3]):
        return read_naacl(lines, pairs)
    found = read_pharaoh(lines, first=first)
    if len(found) != pairs:
        raise ValueError(f"expected a line for each of {pairs:,} pairs, got {len(found):,} lines")
    return found


def read_pharaoh(lines: Iterable[str], *, first: int = 0, swap: bool = False) -> list[Gold]:
    """Read alignments, a line each; `i?j` and `ipj` are possible links, `i-j` is a sure one.

    >>> (gold,) = read_pharaoh(["1-1 2?3"], first=1)
    >>> sorted(gold.sure), sorted(gold.possible)
    ([(0, 0)], [(0, 0), (1, 2)])

    Args:
        lines: one for each pair of sentences; an empty line is a pair without links
        first: the number of the first word, 0 or 1
        swap: whether links are target-source

    Raises:
        ValueError: with the number of the line and the invalid link
    """
    if first not in (0, 1):
        raise ValueError(f"words are counted from 0 or 1, got first={first}")
    return [_gold(line, number, first, swap) for number, line in enumerate(lines, start=1)]


def write_pharaoh(links: Iterable[tuple[int, int]], *, first: int = 0) -> str:
    """Write links as a line, in order.

    >>> write_pharaoh({(1, 0), (0, 2)})
    '0-2 1-0'
    """
    return " ".join(f"{source + first}-{target + first}" for source, target in sorted(links))


def read_naacl(lines: Iterable[str], pairs: int) -> list[Gold]:
    """Read `pair source target [S|P] [confidence]`, a link on each line, all counted from 1.

    >>> (gold,) = read_naacl(["1 1 1", "1 2 3 P"], 1)
    >>> sorted(gold.sure), sorted(gold.possible)
    ([(0, 0)], [(0, 0), (1, 2)])

    Args:
        lines: of the file, in any order; links to position 0, the empty word, are left out
        pairs: the number of pairs of sentences; one that no line names has no links

    Raises:
        ValueError: with the number of the invalid line
    """
    sure: list[set[tuple[int, int]]] = [set() for _ in range(pairs)]
    possible: list[set[tuple[int, int]]] = [set() for _ in range(pairs)]
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words:
            continue
        kind = words[3].upper() if len(words) > 3 else "S"
        if kind.replace(".", "", 1).isdecimal():  # a confidence alone
            kind = "S"
        if len(words) < 3 or not all(map(str.isdecimal, words[:3])) or kind not in ("S", "P"):
            raise ValueError(f"line {number}: {line.strip()!r} is not a link such as 1 2 3 S")
        pair, source, target = map(int, words[:3])
        if not 1 <= pair <= pairs:
            raise ValueError(f"line {number}: expected a pair from 1 to {pairs:,}, got {pair}")
        if not source or not target:
            continue
        link = source - 1, target - 1
        possible[pair - 1].add(link)
        if kind == "S":
            sure[pair - 1].add(link)
    return [Gold(frozenset(s), frozenset(p)) for s, p in zip(sure, possible, strict=True)]


def _gold(line: str, number: int, first: int, swap: bool) -> Gold:
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for word in line.split():
        mark = next((mark for mark in MARKS if mark in word), None)
        left, _, right = word.partition(mark or "-")
        if mark is None or not (left.isdecimal() and right.isdecimal()):
            raise ValueError(f"line {number}: {word!r} is not a link such as 0-1, 0?1 or 0p1")
        pair = int(left) - first, int(right) - first
        if min(pair) < 0:
            raise ValueError(f"line {number}: {word!r} in an alignment that counts from {first}")
        pair = pair[::-1] if swap else pair
        possible.add(pair)
        if MARKS[mark]:
            sure.add(pair)
    return Gold(frozenset(sure), frozenset(possible))
