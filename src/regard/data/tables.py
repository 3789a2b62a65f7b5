"""Tables of any format: their rows, and chosen columns with a report of the rows that lack them."""

import csv
import inspect
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from regard.core.names import did_you_mean
from regard.data.files import (
    NULL,
    SURROGATE,
    Bad,
    Report,
    check_bad,
    check_expansion,
    format_of,
    lines,
    readable,
)

DELIMITERS = ",;\t|"  # that are looked for in the first line of a CSV file
LONGEST = 2**31 - 1  # characters of a cell in a CSV; by itself the csv module stops at 131,072
ROWS = 1024  # rows of a Parquet file that are held in memory
SAVED = ("state.json", "dataset_dict.json")  # marks of a directory of `save_to_disk`

Row = list[str] | dict[str, Any] | ValueError  # cells, a record, or what is wrong with the line
Select = Callable[[list[str]], list[str]] | None  # of all columns those to read; None: all of them


def find_format(path: str | Path, format: str | None, known: Collection[str]) -> str:
    """The format of a file: the given one, or by its name.

    Raises:
        FileNotFoundError, IsADirectoryError: if it is unknown because there is no such file
        ValueError: if it is unknown
    """
    wanted = format or ("dataset" if is_saved_dataset(path) else format_of(path))
    if wanted in known:
        return wanted
    if Path(path).is_dir():
        raise IsADirectoryError(
            f"{path} is a directory, not a file, and not a dataset of save_to_disk"
        )
    readable(path)
    raise ValueError(
        f"{path}: unknown format {wanted!r}{did_you_mean(wanted, known)}; choose with data.format="
    )


def not_decoded(what: str, encoding: str | None) -> str:
    """What is wrong with a part of a file that is in another encoding."""
    return f"the {what} is not {encoding or 'UTF-8'}: choose data.encoding, such as cp949"


def text_rows(
    path: str | Path, encoding: str | None = None
) -> Iterator[tuple[int, str | ValueError]]:
    """Yield (number from 1, text) of every line of a file; an error if it is empty or no text."""
    for number, line in lines(path, encoding):
        if SURROGATE.search(line):
            yield number, ValueError(not_decoded("line", encoding))
        elif not line or line.isspace():
            yield number, ValueError("an empty line")
        else:
            yield number, line


def _tsv_rows(
    path: str | Path, _: Any, encoding: str | None = None, delimiter: str = "\t"
) -> Iterator[tuple[int, Row]]:
    """Cells without quotes; spaces around a delimiter that is not a tab are dropped."""
    if not delimiter:
        raise ValueError("data.delimiter must not be empty")
    for number, line in text_rows(path, encoding):
        if isinstance(line, ValueError):
            yield number, line
            continue
        cells = line.split(delimiter)
        yield number, cells if delimiter == "\t" else [cell.strip() for cell in cells]


def _csv_rows(
    path: str | Path, _: Any, encoding: str | None = None, delimiter: str | None = None
) -> Iterator[tuple[int, Row]]:
    """Cells of each row of a CSV file that is not empty, with the number of its last line."""
    if delimiter is None:
        first = next((line for _, line in lines(path, encoding)), "")
        delimiter = max(DELIMITERS, key=first.count)
    if len(delimiter) != 1 or delimiter in '\n\r"':
        raise ValueError(f"data.delimiter of a CSV file must be one character, got {delimiter!r}")
    csv.field_size_limit(LONGEST)
    text = (f"{line}\n" for _, line in lines(path, encoding))
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if any(map(SURROGATE.search, row)):
                yield reader.line_num, ValueError(not_decoded("row", encoding))
            elif row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(
            f"{path} is not CSV: {error} (line {reader.line_num}); choose data.delimiter, or "
            'data.format="tsv" if nothing is quoted'
        ) from error


def _json_rows(path: str | Path, _: Any, encoding: str | None = None) -> Iterator[tuple[int, Row]]:
    for number, line in text_rows(path, encoding):
        if isinstance(line, ValueError):
            yield number, line
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            yield number, ValueError("not JSON")
        else:
            yield number, record if isinstance(record, dict) else ValueError("not a JSON object")


def _parquet_rows(path: str | Path, select: Select) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    path = readable(path)
    try:
        with pq.ParquetFile(path) as file:
            chosen = select and select(file.schema_arrow.names)
            size = number = 0
            for batch in file.iter_batches(ROWS, columns=chosen):
                size += batch.nbytes
                check_expansion(path, size)
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or not a Parquet file: {error}") from error


def _saved_rows(path: str | Path, select: Select) -> Iterator[tuple[int, Row]]:
    """Rows of a directory of `save_to_disk`; classes by name."""
    import datasets

    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path} is not a directory of save_to_disk: choose another data.format")
    if (path / "dataset_dict.json").is_file():
        splits = sorted(file.parent.name for file in path.glob("*/state.json"))
        raise ValueError(
            f"{path} has several splits ({', '.join(splits)}): give the path of one, such as "
            f"{path / (splits[0] if splits else 'train')}"
        )
    try:
        dataset = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged or not from save_to_disk: {error}") from error
    if select is not None:
        dataset = dataset.select_columns(select(dataset.column_names))
    classes = {
        name: feature.names
        for name, feature in dataset.features.items()
        if isinstance(feature, datasets.ClassLabel)
    }
    for number, row in enumerate(dataset, start=1):
        for name, names in classes.items():
            if isinstance(row[name], int) and 0 <= row[name] < len(names):
                row[name] = names[row[name]]
        yield number, row


TABLES: dict[str, Callable[..., Iterator[tuple[int, Row]]]] = {
    "csv": _csv_rows,
    "tsv": _tsv_rows,
    "jsonl": _json_rows,
    "parquet": _parquet_rows,
    "dataset": _saved_rows,
}


def is_saved_dataset(path: str | Path) -> bool:
    """Whether a directory was written by `save_to_disk` of the `datasets` library."""
    return any((Path(path) / name).is_file() for name in SAVED)


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
        if any("\0" in text for text in values):
            raise ValueError(NULL)
        return tuple(values)

    def _text(self, place: int, record: dict[str, Any]) -> str:
        column = str(list(self.wanted.values())[place])
        value = cell(record, column)
        number = isinstance(value, int | float | Decimal) and math.isfinite(value)
        if number and (place in self.labels or not isinstance(value, bool)):
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
    encoding: str | None = None,
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
        encoding: of a CSV, TSV or JSONL without a byte order mark; by default UTF-8
        delimiter: between the columns of a CSV, by default the most frequent of , ; | and tab in
            its first line; or of a TSV, by default a tab
        bad: "refuse" raises at the end if a row is bad, "skip" leaves it out
    """
    columns = Columns(path, wanted, labels)
    rows = _table_rows(path, columns, format, encoding, delimiter, some=True)
    separated = "data.delimiter, " if format in ("csv", "tsv") else ""
    report.advice = f"choose {separated}{columns.settings}, or data.format"
    report.unit = "row" if format in ("parquet", "dataset") else "line"
    return pick_columns(rows, columns, report, bad)


def read_records(
    path: str | Path,
    columns: Columns,
    *,
    format: str,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of its line, all columns by name) of each row of a table.

    Raises:
        ValueError: if a row is bad, or none is there
    """
    names: list[str] | None = None
    number = 0
    for number, row in _table_rows(path, columns, format, encoding, delimiter, some=False):
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
    encoding: str | None,
    delimiter: str | None,
    *,
    some: bool,
) -> Iterator[tuple[int, Row]]:
    options = {"encoding": encoding, "delimiter": delimiter}
    options = {name: value for name, value in options.items() if value is not None}
    for name in options.keys() - inspect.signature(TABLES[format]).parameters.keys():
        raise ValueError(f"{path}: the format {format} takes no data.{name}; leave it out")
    if format not in ("csv", "tsv"):
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
