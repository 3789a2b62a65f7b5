"""Readers of paired text: tables, JSON lines, aligned files, dictionaries, fixed width."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard.core.names import did_you_mean
from regard.data.files import Bad, Report, check_bad, format_of, lines
from regard.data.frames import read_frames
from regard.data.pairs import Pair, Pairs
from regard.data.tables import (
    SURROGATE,
    Columns,
    MissingColumnError,
    cell,
    csv_rows,
    is_saved_dataset,
    parquet_rows,
    saved_rows,
)

# A line to a pair, or None for a comment; raises ValueError with what is wrong.
Parse = Callable[[str], tuple[str, str] | None]


def read_tsv(
    path: str | Path,
    *,
    source: int | str = 0,
    target: int | str = 1,
    columns: int | None = None,
    delimiter: str = "\t",
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read two columns of tab-separated text without quotes, plain or compressed.

    Args:
        path: the file
        source: the column of the source, from 0, or its name in the first line
        target: the column of the target
        columns: number of columns; by default that of the first line
        delimiter: between columns; spaces around one that is not a tab are dropped
        bad: "refuse" raises if a line is bad, "skip" leaves it out; both are reported
        store: an Arrow file to keep the pairs in, for a corpus larger than memory
    """
    if not delimiter:
        raise ValueError("data.delimiter must not be empty")
    pick = Columns(path, (source, target), columns).pick

    def parse(line: str) -> tuple[str, str] | None:
        cells = line.split(delimiter)
        return pick(cells if delimiter == "\t" else [part.strip() for part in cells])

    return _read(
        path,
        parse,
        bad,
        store,
        f"its columns should be separated by {delimiter!r}: choose data.delimiter or data.format",
    )


def read_csv(
    path: str | Path,
    *,
    source: int | str = "source",
    target: int | str = "target",
    delimiter: str | None = None,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read two columns of CSV, with quotes where needed, plain or compressed.

    Args:
        path: the file
        source: the column of the source by its name in the first line; numbers, from 0, are for
            a file without names
        target: the column of the target
        delimiter: one character; by default, the most frequent of , ; | and tab in the first line
        bad: "refuse" raises if a row is bad, "skip" leaves it out; both are reported
        store: an Arrow file to keep the pairs in, for a corpus larger than memory
    """
    check_bad(bad)
    report = Report(path)
    report.advice = "choose data.delimiter, data.source= and data.target=, or data.format"
    pick = Columns(path, (source, target)).pick

    def parse(cells: list[str]) -> tuple[str, str] | None:
        pair = pick(cells)
        if pair is not None and any(map(SURROGATE.search, pair)):
            raise ValueError("the row is not UTF-8")
        return pair

    return _collect(csv_rows(path, delimiter), parse, report, bad, store)


def read_jsonl(
    path: str | Path,
    *,
    source: str = "source",
    target: str = "target",
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read two keys of JSON objects, one object per line, plain or compressed.

    A dot goes one level down, as in "translation.en".
    """
    advice = "choose the keys with data.source= and data.target="
    keys: list[str] = []  # of the first object

    def parse(line: str) -> tuple[str, str]:
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise ValueError("not JSON") from None
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        if not keys:
            keys.extend(record)
        texts = cell(record, source), cell(record, target)
        for key, text in zip((source, target), texts, strict=True):
            if not isinstance(text, str):
                raise ValueError(f"no text under {key!r}")
            if SURROGATE.search(text):
                raise ValueError(f"half of a surrogate pair under {key!r}")
        return texts

    def found() -> str:
        return f"{advice}; the first object has {', '.join(keys)}" if keys else advice

    return _read(path, parse, bad, store, found)


def read_table(
    path: str | Path,
    *,
    source: str = "source",
    target: str = "target",
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read two columns of a Parquet file, or of a dataset directory written by `save_to_disk`.

    A dot goes one level down, as in "translation.en".
    """
    read_rows = saved_rows if Path(path).is_dir() else parquet_rows
    rows = read_rows(path, (source, target), ("source", "target"))
    return _from_rows(rows, str(path), (source, target), bad, store)


def read_text(
    path: str | Path,
    *,
    source: int | str = 0,
    target: int | str = 1,
    delimiter: str | None = None,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read lines of a source and a target with a tab or ||| between them, or of fixed width.

    The first line decides which; `delimiter` may be another text.
    """
    if delimiter is None:
        first = next((raw for _, raw in lines(path)), b"")
        delimiter = next((one for one in ("\t", "|||") if one.encode() in first), None)
    if delimiter is None:
        return read_fixed_width(path, bad=bad, store=store)
    return read_tsv(path, source=source, target=target, delimiter=delimiter, bad=bad, store=store)


def read_dictionary(
    path: str | Path,
    *,
    stress: bool = True,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read a pronouncing dictionary in the format of CMUDict: `WORD  P H O N E M E S`.

    Comments (`;;;` at the front, `#` after the phonemes) are dropped, and so is the number of a
    second pronunciation, `WORD(2)`: a word may occur more than once.

    Args:
        stress: keep the digits of stress, as in `AH0`
    """

    def parse(line: str) -> tuple[str, str] | None:
        if line.startswith(";;;"):
            return None
        word, _, phonemes = re.sub(r"\s#.*", "", line).strip().partition(" ")
        if not phonemes:
            raise ValueError("a word without phonemes")
        pronounced = " ".join(phonemes.split())
        word = re.sub(r"\(\d+\)$", "", word)
        return word, pronounced if stress else re.sub(r"\d", "", pronounced)

    return _read(path, parse, bad, store)


def read_fixed_width(
    path: str | Path,
    *,
    separator: str = "_",
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read lines `source_target` whose separator is in a fixed column, padded with spaces."""
    width = None

    def parse(line: str) -> tuple[str, str]:
        nonlocal width
        if width is None and separator in line:
            width = line.index(separator)
        if width is None or line[width : width + 1] != separator:
            where = "anywhere" if width is None else f"in column {width + 1}"
            raise ValueError(f"no {separator!r} {where}")
        return line[:width].strip(), line[width + 1 :].strip()

    return _read(
        path,
        parse,
        bad,
        store,
        f"expected a tab, ||| or {separator!r} in a fixed column between source and target: choose "
        'data.delimiter or data.format, or give two aligned files as train = ["a.en", "a.de"]',
    )


def read_aligned(
    source: str | Path,
    target: str | Path,
    *,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read pairs from the lines of two aligned files, plain or compressed."""
    check_bad(bad)
    report = Report(f"{source} and {target}")

    def rows() -> Iterator[Pair]:
        counts = [0, 0]
        for left, right in zip_longest(lines(source), lines(target)):
            counts[0] += left is not None
            counts[1] += right is not None
            if left is None or right is None:
                continue
            report.lines += 1
            try:
                yield _checked(_decoded(left[1], "source"), _decoded(right[1], "target"))
            except ValueError as error:
                report.add(left[0], str(error))
        if counts[0] != counts[1]:
            raise ValueError(
                f"aligned files should have the same number of lines, but {source} has "
                f"{counts[0]} and {target} has {counts[1]}"
            )
        report.check(bad)

    return Pairs.collect(rows(), report, store=store)


READERS: dict[str, Callable[..., Pairs]] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_table,
    "dataset": read_table,
    "dict": read_dictionary,
    "txt": read_text,
    "npz": read_frames,
}


def read_pairs(path: str | Path, *, format: str | None = None, **options: Any) -> Pairs:
    """Read pairs from a file of any known format, or a directory of `save_to_disk`.

    Args:
        path: the file, plain or compressed (`.gz`, `.zst`)
        format: a name of `READERS`; by default, the ending of the name before that of compression
        options: what the reader of that format takes, such as `bad="skip"`
    """
    wanted = format or ("dataset" if is_saved_dataset(path) else format_of(path))
    if wanted not in READERS:
        if Path(path).is_dir():
            raise IsADirectoryError(
                f"{path} is a directory, not a file, and not a dataset of save_to_disk"
            )
        if not Path(path).exists():
            raise FileNotFoundError(f"file {path} does not exist")
        raise ValueError(
            f"{path}: unknown format {wanted!r}{did_you_mean(wanted, READERS)}; choose with "
            "data.format="
        )
    reader = READERS[wanted]
    for name in options.keys() - inspect.signature(reader).parameters.keys():
        raise ValueError(f"{path}: the format {wanted} takes no data.{name}; leave it out")
    for name in ("source", "target"):
        if wanted in ("jsonl", "parquet", "dataset") and isinstance(options.get(name), int):
            raise ValueError(
                f"{path}: data.{name} of the format {wanted} must be a name, got {options[name]}"
            )
    return reader(path, **options)


def from_dataset(
    dataset: Any,
    *,
    source: str,
    target: str,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Pairs from two columns of a dataset of the `datasets` library, streamed ones included.

    Args:
        dataset: anything that yields rows as dictionaries
        source: the column of the source; a dot goes one level down, as in "translation.en"
        target: the column of the target
        bad: what to do with rows that lack a side; they are numbered from 1 in the report
        store: an Arrow file to keep the pairs in; needed for a dataset larger than memory
    """
    rows = (
        (number, (_cell(row, source), _cell(row, target)))
        for number, row in enumerate(dataset, start=1)
    )
    return _from_rows(rows, "the dataset", (source, target), bad, store)


def _from_rows(
    rows: Iterable[tuple[int, Any]],
    name: str,
    columns: tuple[str, str],
    bad: Bad,
    store: str | Path | None,
) -> Pairs:
    """Pairs from numbered rows of two values, which may be anything."""
    check_bad(bad)
    report = Report(name)
    report.unit = "row"
    report.advice = "choose the columns with data.source= and data.target="

    def checked(values: Any) -> tuple[str, str]:
        wrong = [
            column
            for column, text in zip(columns, values, strict=True)
            if not isinstance(text, str) or not text.strip()
        ]
        if wrong:
            raise ValueError(f"no text in {' or '.join(map(repr, wrong))}")
        return values

    return _collect(rows, checked, report, bad, store)


def _read(
    path: str | Path,
    parse: Parse,
    bad: Bad,
    store: str | Path | None,
    advice: str | Callable[[], str] = "",
) -> Pairs:
    """Read a file line by line.

    Args:
        advice: the settings to change if all lines are bad
    """
    check_bad(bad)
    report = Report(path)

    def parsed(raw: bytes) -> tuple[str, str] | None:
        line = _decoded(raw, "line")
        if not line.strip():
            raise ValueError("an empty line")
        return parse(line)

    def rows() -> Iterator[tuple[int, bytes]]:
        yield from lines(path)
        report.advice = advice if isinstance(advice, str) else advice()

    return _collect(rows(), parsed, report, bad, store)


def _collect(
    rows: Iterable[tuple[int, Any]],
    parse: Callable[[Any], tuple[str, str] | None],
    report: Report,
    bad: Bad,
    store: str | Path | None,
) -> Pairs:
    """Collect the pairs of numbered rows; `parse` is like `Parse`."""

    def good() -> Iterator[Pair]:
        for number, row in rows:
            try:
                pair = parse(row)
                if pair is None:
                    continue
                pair = _checked(*pair)
            except MissingColumnError:
                raise
            except ValueError as error:
                report.add(number, str(error))
            else:
                yield pair
            report.lines += 1
        report.check(bad)

    return Pairs.collect(good(), report, store=store)


def _decoded(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the {what} is not UTF-8 at byte {error.start + 1}") from None


def _checked(source: str, target: str) -> tuple[str, str]:
    empty = [name for name, text in (("source", source), ("target", target)) if not text.strip()]
    if empty:
        raise ValueError(f"the {' and the '.join(empty)} {'are' if len(empty) > 1 else 'is'} empty")
    return source, target


def _cell(row: dict[str, Any], column: str) -> Any:
    cell: Any = row
    for key in column.split("."):
        if not isinstance(cell, dict) or key not in cell:
            known = list(cell) if isinstance(cell, dict) else []
            raise ValueError(f"the dataset has no column {column!r}{did_you_mean(key, known)}")
        cell = cell[key]
    return cell
