"""Which lines of a file could not be used, why, and whether that stops the reading."""

from collections import Counter
from pathlib import Path
from typing import Literal

Bad = Literal["refuse", "skip"]
SHOWN = 20  # lines that are kept by number; the others are counted


class Report:
    """What a reader met: how many lines, and the bad ones by line number and reason.

    >>> report = Report("pairs.tsv")
    >>> report.lines = 5
    >>> report.add(2, "1 column instead of 2")
    >>> report.add(4, "the target is empty")
    >>> print(report)
    pairs.tsv: 2 of 5 lines are bad: line 2 (1 column instead of 2), line 4 (the target is empty)
    >>> report.count
    2
    """

    def __init__(self, name: str | Path) -> None:
        self.name = str(name)
        self.lines = 0
        self.reasons: Counter[str] = Counter()
        self.examples: list[tuple[int, str]] = []  # the first SHOWN, (line number from 1, reason)

    @property
    def count(self) -> int:
        """How many lines are bad."""
        return self.reasons.total()

    def add(self, line: int, reason: str) -> None:
        """Record a bad line by its number, counted from 1."""
        self.reasons[reason] += 1
        if len(self.examples) < SHOWN:
            self.examples.append((line, reason))

    def settle(self, bad: Bad) -> None:
        """Refuse if bad lines are not to be skipped, or if nothing is left.

        Raises:
            ValueError: with the line numbers and the count
        """
        if self.lines == 0:
            raise ValueError(f"{self.name} is empty: it has no line to read")
        if self.count == self.lines:
            raise ValueError(f"no line can be used. {self}")
        if self.count and bad == "refuse":
            raise ValueError(f"{self}; correct them, or ask to skip bad lines")

    def __str__(self) -> str:
        if not self.count:
            return f"{self.name}: {self.lines} lines, all good"
        shown = ", ".join(f"line {line} ({reason})" for line, reason in self.examples)
        more = self.count - len(self.examples)
        rest = f", and {more} more" if more else ""
        are = "line is" if self.lines == 1 else "lines are"
        return f"{self.name}: {self.count} of {self.lines} {are} bad: {shown}{rest}"


def check_bad(bad: str) -> None:
    """Refuse any other word than those that say what to do with bad lines."""
    if bad not in ("refuse", "skip"):
        raise ValueError(f"bad must be 'refuse' or 'skip', got {bad!r}")
