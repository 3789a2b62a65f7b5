"""Rows of tables: CSV and Parquet files, and directories of the `datasets` library."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.core.names import did_you_mean
from regard.data.files import check_expansion, lines, readable

DELIMITERS = ",;\t|"  # that are looked for in the first line of a CSV file
LONGEST = 2**31 - 1  # characters of a cell in a CSV; by itself the csv module stops at 131,072
ROWS = 1024  # rows of a Parquet file that are held in memory
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, or a byte that is not UTF-8
SAVED = ("state.json", "dataset_dict.json")  # marks of a directory of `save_to_disk`


class MissingColumnError(ValueError):
    """A column that the table does not have: no row of it can be used."""


class Columns:
    """Two columns of a table without names, or with names in its first row.

    >>> columns = Columns("a.csv", ("de", "en"))
    >>> columns.pick(["id", "en", "de"]), columns.pick(["7", "one", "eins"])
    (None, ('eins', 'one'))

    Args:
        path: of the table, for errors
        wanted: a name, or a number from 0, of each; a name means that the first row has names
        count: of all columns; by default, that of the first row with both
        settings: which choose the columns, for errors
    """

    def __init__(
        self,
        path: str | Path,
        wanted: tuple[int | str, int | str],
        count: int | None = None,
        settings: tuple[str, str] = ("source", "target"),
    ) -> None:
        self.path, self.wanted, self.count, self.settings = path, wanted, count, settings
        self.places = None if any(isinstance(one, str) for one in wanted) else wanted

    def pick(self, cells: list[str]) -> tuple[str, str] | None:
        """Return both cells of a row, or None for the row of names.

        Raises:
            MissingColumnError: if a name is not among those of the first row
            ValueError: for a row with another number of cells
        """
        if self.places is None:
            for name in self.wanted:
                if isinstance(name, str):
                    check_column(self.path, name, cells, self.settings)
            first, second = (
                cells.index(one) if isinstance(one, str) else one for one in self.wanted
            )
            self.places, self.count = (first, second), len(cells)
            return None
        first, second = (int(place) for place in self.places)
        if self.count is None and len(cells) > max(first, second):
            self.count = len(cells)
        wanted = self.count or max(first, second) + 1
        if len(cells) != wanted:
            raise ValueError(f"{len(cells)} column{'s' * (len(cells) != 1)} instead of {wanted}")
        return cells[first], cells[second]


def check_column(path: str | Path, name: str, known: list[str], settings: tuple[str, str]) -> None:
    """Raise `MissingColumnError` with the settings that choose columns, if one is not known."""
    if name not in known:
        choose = " and ".join(f"data.{setting}=" for setting in settings)
        raise MissingColumnError(
            f"{path} has no column {name!r}{did_you_mean(name, known)}; choose with {choose}"
        )


def csv_rows(path: str | Path, delimiter: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its last line, cells) of each row of a CSV file that is not empty.

    Bytes that are not UTF-8 become surrogates, which are not text.

    Args:
        path: a file, plain or compressed
        delimiter: between cells; by default, whichever of , ; | and tab is most frequent in the
            first line
    """
    if delimiter is None:
        first = next((raw for _, raw in lines(path)), b"").decode(errors="replace")
        delimiter = max(DELIMITERS, key=first.count)
    if len(delimiter) != 1 or delimiter in '\n\r"':
        raise ValueError(f"data.delimiter of a CSV file must be one character, got {delimiter!r}")
    csv.field_size_limit(LONGEST)
    text = (f"{raw.decode(errors='surrogateescape')}\n" for _, raw in lines(path))
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(
            f"{path} is not CSV: {error} (line {reader.line_num}); choose data.delimiter, or "
            'data.format="tsv" if nothing is quoted'
        ) from error


def is_saved_dataset(path: str | Path) -> bool:
    """Whether a directory was written by `save_to_disk` of the `datasets` library."""
    return any((Path(path) / name).is_file() for name in SAVED)


def parquet_rows(path: str | Path, names: tuple[str, str], settings: tuple[str, str]) -> Any:
    """Yield (number from 1, both values) of the rows of a Parquet file.

    Args:
        path: the file
        names: the columns to read; a dot goes one level down, as in "translation.en"
        settings: which choose them, for errors
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    path = readable(path)
    try:
        with pq.ParquetFile(path) as file:
            known = file.schema_arrow.names
            for name in names:
                check_column(path, _root(name, known), known, settings)
            roots = list({_root(name, known) for name in names})
            size = number = 0
            for batch in file.iter_batches(ROWS, columns=roots):
                size += batch.nbytes
                check_expansion(path, size)
                for row in batch.to_pylist():
                    number += 1
                    yield number, tuple(cell(row, name) for name in names)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or not a Parquet file: {error}") from error


def saved_rows(path: str | Path, names: tuple[str, str], settings: tuple[str, str]) -> Any:
    """Yield (number from 1, both values) of a directory of `save_to_disk`; classes by name."""
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
    known = dataset.column_names
    for name in names:
        check_column(path, _root(name, known), known, settings)
    dataset = dataset.select_columns(list({_root(name, known) for name in names}))
    classes = [getattr(dataset.features.get(name), "names", None) for name in names]
    for number, row in enumerate(dataset, start=1):
        values = (cell(row, name) for name in names)
        yield (
            number,
            tuple(
                of[value] if of and isinstance(value, int) and 0 <= value < len(of) else value
                for value, of in zip(values, classes, strict=True)
            ),
        )


def cell(row: Any, column: str) -> Any:
    """The value of a column of a row, None if it has none; a dot goes one level down."""
    if isinstance(row, dict) and column in row:
        return row[column]
    root, _, rest = column.partition(".")
    return cell(row[root], rest) if rest and isinstance(row, dict) and root in row else None


def _root(name: str, known: list[str]) -> str:
    return name if name in known else name.partition(".")[0]
