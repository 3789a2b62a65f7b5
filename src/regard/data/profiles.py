"""Profiles of users and items as vectors: a column for each value of a field."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BINS = 6  # of a numeric field
SEPARATOR = "|"  # between several values of a field
DASH = "–"  # between the ends of a range


@dataclass(frozen=True)
class Profiles:
    """One row for each user or item, one column for each value of each field.

    >>> profiles = Profiles.of({"genre": ["war|drama", "war"]})
    >>> profiles.columns, profiles.rows.tolist()
    (['genre drama', 'genre war'], [[1.0, 1.0], [0.0, 1.0]])
    """

    rows: np.ndarray  # (n, width), 0 or 1
    columns: list[str]  # "field value"

    @classmethod
    def of(cls, table: Mapping[str, Sequence[str]], count: int | None = None) -> "Profiles":
        """Make profiles from the columns of a table, all of one length (`count` if there are none).

        A field of more than BINS different numbers is cut into quantile ranges; any other field has
        a column for each value, and `war|drama` is two values. An empty cell has no value.
        """
        blocks, names = [], []
        for field, cells in table.items():
            cut = _ranges(cells)
            values = cut if cut is not None else [cell.split(SEPARATOR) for cell in cells]
            known = {value: None for parts in values for value in parts if value}
            ordered = sorted(known) if cut is None else _by_number(known)
            place = {value: column for column, value in enumerate(ordered)}
            block = np.zeros((len(cells), len(ordered)), np.float32)
            for row, parts in enumerate(values):
                for value in parts:
                    if value:
                        block[row, place[value]] = 1.0
            blocks.append(block)
            names += [f"{field} {value}" for value in ordered]
        count = len(next(iter(table.values()), ())) if count is None else count
        rows = np.concatenate(blocks, axis=1) if blocks else np.zeros((count, 0), np.float32)
        return cls(rows, names)

    def encode(self, values: Mapping[str, str]) -> np.ndarray:
        """The row (width,) of a new user or item; a number is put into the nearest range.

        >>> Profiles.of({"age": ["17", "18"], "job": ["cook", "poet"]}).encode({"job": "poet"})
        array([0., 0., 0., 1.], dtype=float32)
        """
        if values and not self.columns:
            raise ValueError("the data has no profiles, so that none can be given")
        row = np.zeros(len(self.columns), np.float32)
        for field, cell in values.items():
            mine = {
                name.removeprefix(f"{field} "): column
                for column, name in enumerate(self.columns)
                if name.startswith(f"{field} ")
            }
            for value in cell.split(SEPARATOR):
                found = value if value in mine else _nearest_range(value, list(mine))
                if found is None:
                    fields = sorted({name.split(" ")[0] for name in self.columns})
                    known = ", ".join(mine) if mine else f"the fields are {', '.join(fields)}"
                    raise ValueError(f"no profile has {field} {value!r}; known: {known}")
                row[mine[found]] = 1.0
        return row


def _ranges(cells: Sequence[str]) -> list[list[str]] | None:
    """The range of each number, "low–high"; None if the field is not numeric."""
    try:
        numbers = np.array([float(cell) for cell in cells if cell])
    except ValueError:
        return None
    if len(np.unique(numbers)) <= BINS or not np.isfinite(numbers).all():
        return None
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, numbers, side="right")
    names = {}
    for one in np.unique(bins):
        low, high = numbers[bins == one].min(), numbers[bins == one].max()
        names[int(one)] = f"{low:.12g}{DASH}{high:.12g}"
    given = iter(bins)
    return [[names[int(next(given))] if cell else ""] for cell in cells]


def _by_number(ranges: Iterable[str]) -> list[str]:
    return sorted(ranges, key=lambda name: float(name.split(DASH)[0]))


def _nearest_range(value: str, names: Sequence[str]) -> str | None:
    """The range that a number is in or nearest to; None if the names are not ranges."""
    try:
        number = float(value)
        ends = [tuple(map(float, name.split(DASH))) for name in names if DASH in name]
    except ValueError:
        return None
    if not math.isfinite(number) or not ends or len(ends) != len(names):
        return None
    away = [max(low - number, number - high) for low, high in ends]
    return names[int(np.argmin(away))]
