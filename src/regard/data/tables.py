"""Rows of tables: CSV, TSV, JSON lines, Parquet, and directories of the `datasets` library."""

import csv
import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from regard.core.names import did_you_mean
from regard.data.files import check_expansion, format_of, lines, readable

DELIMITERS = ",;\t|"  # that are looked for in the first line of a CSV file
LONGEST = 2**31 - 1  # characters of a cell in a CSV; by itself the csv module stops at 131,072
ROWS = 1024  # rows of a Parquet file that are held in memory
NOT_UTF8 = "the {} is not UTF-8: convert the file, such as by iconv -f CP949 -t UTF-8"
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, or a byte that is not UTF-8
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


def text_rows(path: str | Path) -> Iterator[tuple[int, str | ValueError]]:
    """Yield (number from 1, text) of every line of a file; an error if it is empty or not UTF-8."""
    for number, raw in lines(path):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            yield number, ValueError(NOT_UTF8.format("line"))
        else:
            blank = not line or line.isspace()
            yield number, ValueError("an empty line") if blank else line


def _tsv_rows(path: str | Path, _: Any, delimiter: str = "\t") -> Iterator[tuple[int, Row]]:
    """Cells without quotes; spaces around a delimiter that is not a tab are dropped."""
    if not delimiter:
        raise ValueError("data.delimiter must not be empty")
    for number, line in text_rows(path):
        if isinstance(line, ValueError):
            yield number, line
            continue
        cells = line.split(delimiter)
        yield number, cells if delimiter == "\t" else [cell.strip() for cell in cells]


def _csv_rows(
    path: str | Path, _: Any = None, delimiter: str | None = None
) -> Iterator[tuple[int, Row]]:
    """Cells of each row of a CSV file that is not empty, with the number of its last line."""
    if delimiter is None:
        first = next((raw for _, raw in lines(path)), b"").decode(errors="replace")
        delimiter = max(DELIMITERS, key=first.count)
    if len(delimiter) != 1 or delimiter in '\n\r"':
        raise ValueError(f"data.delimiter of a CSV file must be one character, got {delimiter!r}")
    csv.field_size_limit(LONGEST)
    # bytes that are not UTF-8 become surrogates, which are not text
    text = (f"{raw.decode(errors='surrogateescape')}\n" for _, raw in lines(path))
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if any(map(SURROGATE.search, row)):
                yield reader.line_num, ValueError(NOT_UTF8.format("row"))
            elif row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(
            f"{path} is not CSV: {error} (line {reader.line_num}); choose data.delimiter, or "
            'data.format="tsv" if nothing is quoted'
        ) from error


def _json_rows(path: str | Path, _: Any) -> Iterator[tuple[int, Row]]:
    for number, line in text_rows(path):
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
