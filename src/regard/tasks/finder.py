"""A trained reader that finds the marked digit: what `regard.load` gives for such a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from regard.data.marked import DIGITS, MARKS, Marked, marked_digits
from regard.models.hard import HardReader

SIGNS = ("*", "", "′", "″", "‴")
"""How marks are written; the first is the one to look for."""


class Reading(NamedTuple):
    """Where a reader looked, and what it read there."""

    digit: int
    position: int
    probability: float  # of looking there


class Finder:
    """A reader, for rows of digits of which one is marked.

    >>> finder = Finder(HardReader(10, 5))
    >>> (found,) = finder.find([[3, 1, 4]], [[1, 0, 2]])
    >>> 0 <= found.position < 3
    True

    Args:
        model: a `HardReader` of digits and marks
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval()

    @torch.no_grad()
    def find(
        self, digits: Sequence[Sequence[int]], marks: Sequence[Sequence[int]]
    ) -> list[Reading]:
        """Read rows of digits, 0 to 9, with marks, 0 (the one to look for) to 4."""
        rows = self._rows(digits, marks)
        if not rows:
            return []
        lengths = torch.tensor([len(row) for row, _ in rows])
        padded = [
            nn.utils.rnn.pad_sequence([torch.tensor(row[i]) for row in rows], batch_first=True)
            for i in (0, 1)
        ]
        found = self.model(*padded, lengths)
        return [
            Reading(int(logits.argmax()), int(chosen), float(likely.exp()))
            for logits, chosen, likely in zip(
                found.logits, found.chosen, found.log_probability, strict=True
            )
        ]

    def figure(self, path: str | Path, rows: Marked | None = None) -> Path:
        """Draw where it looked in rows, by default eleven new ones, as PNG or SVG."""
        from regard.visual.figure.choices import choices

        rows = marked_digits(11, "test") if rows is None else rows
        with torch.no_grad():
            found = self.model(rows.digits, rows.marks, rows.lengths)
            weights = self._weights(rows)
        lengths = rows.lengths.tolist()
        symbols = [
            [f"{digit}{SIGNS[mark]}" for digit, mark in zip(*row, strict=True)][:length]
            for *row, length in zip(rows.digits.tolist(), rows.marks.tolist(), lengths, strict=True)
        ]
        return choices(
            symbols,
            [row[:length] for row, length in zip(weights.tolist(), lengths, strict=True)],
            found.chosen.tolist(),
            rows.position.tolist(),
            path,
            title="find the digit with the star: where hard attention looked",
        )

    def _weights(self, rows: Marked) -> torch.Tensor:
        """How likely each position is, (B, N)."""
        assert isinstance(self.model, HardReader)
        return self.model.probabilities(rows.digits, rows.marks, rows.lengths)

    def _rows(
        self, digits: Sequence[Sequence[int]], marks: Sequence[Sequence[int]]
    ) -> list[tuple[Sequence[int], Sequence[int]]]:
        if len(digits) != len(marks):
            raise ValueError(
                f"{len(digits)} rows of digits need as many of marks, got {len(marks)}"
            )
        for number, (row, signs) in enumerate(zip(digits, marks, strict=True), start=1):
            if len(row) != len(signs) or not row:
                raise ValueError(
                    f"row {number}: {len(row)} digits and {len(signs)} marks; there should be as "
                    "many, at least one"
                )
            for name, values, kinds in (("digits", row, DIGITS), ("marks", signs, MARKS)):
                if not all(isinstance(v, int) and 0 <= v < kinds for v in values):
                    raise ValueError(
                        f"row {number}: {name} are whole numbers from 0 to {kinds - 1}, got "
                        f"{values}"
                    )
        return list(zip(digits, marks, strict=True))
