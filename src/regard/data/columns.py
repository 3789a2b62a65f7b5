"""Chosen columns of tables of any format, with a report of the rows that lack them."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.core.names import did_you_mean
from regard.data.files import Bad, Report, check_bad
from regard.data.tables import SURROGATE, TABLES, Row


class MissingColumnError(ValueError):
    """A column that the table does not have: no row of it can be used."""


class Columns:
    """Some columns of a table without names, with names in its first row, or of records.

    >>> columns = Columns("a.csv", {"source": "de", "target": "en"})
    >>> columns.pick(["id", "en", "de"]), columns.pick(["7", "one", "eins"])
    (None, ('eins', 'one'))
    >>> columns.pick({"de": "zwei", "en": "two"})
    ('zwei', 'two')

    Args:
        path: of the table, for errors
        wanted: of each setting that chooses a column its name, or its number from 0; a name means
            that the first row has names
        labels: settings whose values may be numbers, and are stripped of spaces
    """

    def __init__(
        self, path: str | Path, wanted: Mapping[str, int | str], labels: Collection[str] = ()
    ) -> None:
        self.path, self.wanted = path, dict(wanted)
        self.labels = [place for place, setting in enumerate(wanted) if setting in labels]
        self.places = [column for column in wanted.values() if isinstance(column, int)]
        self.named = len(self.places) < len(wanted)  # and the row of names is still to come
        self.count: int | None = None  # of all columns
        if min(self.places, default=0) < 0:
            raise ValueError(f"{path}: columns are numbered from 0, got {min(self.places)}")

    def pick(self, row: list[str] | dict[str, Any]) -> tuple[str, ...] | None:
        """Return the chosen texts of a row, or None for the row of names.

        Raises:
            MissingColumnError: if a name is not among those of the first row
            ValueError: if another number of cells, or no text, is there
        """
        if isinstance(row, dict):
            return self.texts(row)
        if self.named:
            self.check(dict.fromkeys(row))
            self.places = [row.index(c) if isinstance(c, str) else c for c in self.wanted.values()]
            self.count, self.named = len(row), False
            return None
        if len(row) != self.count:
            least = max(self.places) + 1
            if self.count is not None or len(row) < least:
                raise ValueError(f"{_columns(row)} instead of {self.count or least}")
            self.count = len(row)
        return self._checked([row[place] for place in self.places])

    def texts(self, record: dict[str, Any]) -> tuple[str, ...]:
        """Return the chosen texts of a record; `ValueError` if one is missing."""
        return self._checked([self._text(place, record) for place in range(len(self.wanted))])

    def check(self, record: Mapping[str, Any]) -> None:
        """Raise `MissingColumnError`, with the settings that choose columns, if one is missing."""
        for name in self.wanted.values():
            level, rest = record, name
            while isinstance(rest, str) and isinstance(level, Mapping) and rest not in level:
                root, _, rest = rest.partition(".")
                if root not in level or not rest:
                    raise MissingColumnError(
                        f"{self.path} has no column {name!r}{did_you_mean(root, level)}; choose "
                        f"with {self.settings}"
                    )
                level = level[root]

    def roots(self, known: list[str]) -> list[str]:
        """Return the columns of a table that hold the chosen ones, which may be nested."""
        self.check(dict.fromkeys(known))
        names = map(str, self.wanted.values())
        return list({name if name in known else name.partition(".")[0] for name in names})

    @property
    def settings(self) -> str:
        """The settings that choose the columns, in words."""
        *others, last = (f"data.{setting}=" for setting in self.wanted)
        return f"{', '.join(others)} and {last}" if others else last

    def _checked(self, values: list[str]) -> tuple[str, ...]:
        for place in self.labels:
            values[place] = values[place].strip()
        if not all(values) or any(map(str.isspace, values)):
            pairs = zip(self.wanted, values, strict=True)
            empty = [setting for setting, text in pairs if not text.strip()]
            are = "are" if len(empty) > 1 else "is"
            raise ValueError(f"the {' and the '.join(empty)} {are} empty")
        return tuple(values)

    def _text(self, place: int, record: dict[str, Any]) -> str:
        column = str(list(self.wanted.values())[place])
        value = cell(record, column)
        if place in self.labels and isinstance(value, int | float) and math.isfinite(value):
            return str(value)
        if not isinstance(value, str):
            raise ValueError(f"no {'value' if place in self.labels else 'text'} under {column!r}")
        if SURROGATE.search(value):
            raise ValueError(f"half of a surrogate pair under {column!r}")
        return value


def read_columns(
    path: str | Path,
    wanted: Mapping[str, int | str],
    report: Report,
    *,
    format: str,
    delimiter: str | None = None,
    labels: Collection[str] = (),
    bad: Bad = "refuse",
) -> Iterator[Any]:
    """Yield some columns of the good rows of a table; the bad ones are reported.

    Args:
        path: the file or directory
        wanted, labels: as in `Columns`
        report: of the rows
        format: a name of `TABLES`
        delimiter: between the columns of a CSV, by default the most frequent of , ; | and tab in
            its first line; or of a TSV, by default a tab
        bad: "refuse" raises at the end if a row is bad, "skip" leaves it out
    """
    columns = Columns(path, wanted, labels)
    rows = _table_rows(path, columns, format, delimiter, some=True)
    separated = "data.delimiter, " if format in ("csv", "tsv") else ""
    report.advice = f"choose {separated}{columns.settings}, or data.format"
    report.unit = "row" if format in ("parquet", "dataset") else "line"
    return pick_columns(rows, columns, report, bad)


def read_records(
    path: str | Path, columns: Columns, *, format: str, delimiter: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of its line, all columns by name) of each row of a table.

    Raises:
        ValueError: if a row is bad, or none is there
    """
    names: list[str] | None = None
    number = 0
    for number, row in _table_rows(path, columns, format, delimiter, some=False):
        if isinstance(row, list) and names is None:
            columns.check(dict.fromkeys(row))
            names, number = row, 0
        elif isinstance(row, ValueError):
            raise ValueError(f"{path}, line {number}: {row}")
        elif isinstance(row, dict):
            if names is None:
                columns.check(row)
                names = list(row)
            yield number, row
        elif names is not None and len(row) == len(names):
            yield number, dict(zip(names, row, strict=True))
        elif names is not None:
            raise ValueError(f"{path}, line {number}: {_columns(row)} instead of {len(names)}")
    if not number and names is not None:
        raise ValueError(f"{path} has nothing but column names: expected at least one row")
    if not number:
        raise ValueError(f"{path} is empty: expected at least one row")


def _table_rows(
    path: str | Path,
    columns: Columns,
    format: str,
    delimiter: str | None,
    *,
    some: bool,
) -> Iterator[tuple[int, Row]]:
    options: dict[str, Any] = {} if delimiter is None else {"delimiter": delimiter}
    if format not in ("csv", "tsv"):
        if options:
            raise ValueError(f"{path}: the format {format} takes no data.delimiter; leave it out")
        for setting, column in columns.wanted.items():
            if isinstance(column, int):
                raise ValueError(
                    f"{path}: data.{setting} of the format {format} must be a name, got {column}"
                )
    return TABLES[format](path, columns.roots if some else None, **options)


def pick_columns(
    rows: Iterable[tuple[int, Row]], columns: Columns, report: Report, bad: Bad
) -> Iterator[Any]:
    """Yield the chosen columns of good rows; `report.check` comes after the last one."""
    first = True

    def pick(row: Row) -> tuple[str, ...] | None:
        nonlocal first
        if isinstance(row, list):
            return columns.pick(row)
        if isinstance(row, ValueError):
            raise row
        if first:
            first = False
            if report.unit == "row":  # all have the same columns
                columns.check(row)
            else:
                report.advice += f"; the first object has {', '.join(row)}"
        return columns.pick(row)

    return good_rows(rows, pick, report, bad)


def good_rows(
    rows: Iterable[tuple[int, Any]],
    parse: Callable[[Any], tuple[Any, ...] | None],
    report: Report,
    bad: Bad,
) -> Iterator[Any]:
    """Yield what `parse` makes of numbered rows; `report.check` comes after the last one.

    Args:
        parse: returns None for a comment, raises ValueError with what is wrong
    """
    check_bad(bad)
    number = 0
    for number, row in rows:
        try:
            found = parse(row)
        except MissingColumnError:
            raise
        except ValueError as error:
            report.lines += 1
            report.add(number, str(error))
        else:
            if found is not None:
                report.lines += 1
                yield found
    if number and not report.lines:
        raise ValueError(f"{report.name} has nothing but column names or comments: no example")
    report.check(bad)


def _columns(row: list[str]) -> str:
    return f"{len(row)} column{'s' * (len(row) != 1)}"


def cell(row: Any, column: str) -> Any:
    """The value of a column of a row, None if it has none; a dot goes one level down."""
    if isinstance(row, dict) and column in row:
        return row[column]
    root, _, rest = column.partition(".")
    return cell(row[root], rest) if rest and isinstance(row, dict) and root in row else None
