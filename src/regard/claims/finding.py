"""What a measured claim returns: the sentence, the numbers, and whether they agree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Curves = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Chart:
    """Lines to draw, each a list of (x, y)."""

    y: str
    curves: Curves
    log: bool = False


@dataclass(frozen=True)
class Finding:
    """The numbers behind one sentence of the textbooks.

    >>> print(Finding(("n", "value"), [(1, 1.0), (2, 2.0)], True, "2 > 1"))
    n  value
    1      1
    2      2
    <BLANKLINE>
    agrees: 2 > 1
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float, ...]]
    agrees: bool
    because: str
    x: str = ""
    charts: list[Chart] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"rows": rows, "agrees": self.agrees, "because": self.because}

    def __str__(self) -> str:
        cells = [self.columns, *(tuple(_short(cell) for cell in row) for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        verdict = "agrees" if self.agrees else "does not agree"
        return "\n".join([*lines, "", f"{verdict}: {self.because}"])


class Claim(NamedTuple):
    """A sentence of the textbooks, and the function that measures it.

    `measure(True)` is a quick run with fewer and smaller cases.
    """

    sentence: str
    measure: Callable[[bool], Finding]


def _short(cell: str | float) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.3g}"
