"""Readers of paired text: TSV, aligned files, JSON lines, dictionaries, fixed width, datasets."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard.core.names import did_you_mean
from regard.data.files import Bad, Report, check_bad, lines
from regard.data.frames import read_frames
from regard.data.pairs import Pair, Pairs

# A line to a pair, or None for a comment; raises ValueError with what is wrong.
Parse = Callable[[str], tuple[str, str] | None]


def read_tsv(
    path: str | Path,
    *,
    source: int = 0,
    target: int = 1,
    columns: int | None = None,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read two columns of tab-separated text, plain or gzipped.

    Args:
        path: the file
        source: the column of the source, from 0
        target: the column of the target
        columns: number of columns; by default that of the first line
        bad: "refuse" raises if a line is bad, "skip" leaves it out; both are reported
        store: an Arrow file to keep the pairs in, for a corpus larger than memory
    """
    expected = columns

    def parse(line: str) -> tuple[str, str]:
        nonlocal expected
        cells = line.split("\t")
        if expected is None and len(cells) > max(source, target):
            expected = len(cells)
        wanted = expected or max(source, target) + 1
        if len(cells) != wanted:
            raise ValueError(f"{_columns(len(cells))} instead of {wanted}")
        return cells[source], cells[target]

    return _read(path, parse, bad, store)


def read_jsonl(
    path: str | Path,
    *,
    source: str = "source",
    target: str = "target",
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read two keys of JSON objects, one object per line, plain or gzipped."""

    def parse(line: str) -> tuple[str, str]:
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise ValueError("not JSON") from None
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        for key in (source, target):
            if not isinstance(record.get(key), str):
                raise ValueError(f"no text under {key!r}")
            if any("\ud800" <= char <= "\udfff" for char in record[key]):
                raise ValueError(f"half of a surrogate pair under {key!r}")
        return record[source], record[target]

    return _read(path, parse, bad, store)


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

    return _read(path, parse, bad, store)


def read_aligned(
    source: str | Path,
    target: str | Path,
    *,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Read pairs from the lines of two aligned files, plain or gzipped."""
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
    "jsonl": read_jsonl,
    "dict": read_dictionary,
    "txt": read_fixed_width,
    "npz": read_frames,
}


def read_pairs(path: str | Path, *, format: str | None = None, **options: Any) -> Pairs:
    """Read pairs from a file of any known format.

    Args:
        path: the file, plain or gzipped
        format: "tsv", "jsonl", "dict", "txt" (fixed width) or "npz"; by default, the ending of
            the name, before `.gz`
        options: what the reader of that format takes, such as `bad="skip"`
    """
    ending = Path(Path(path).name.removesuffix(".gz")).suffix[1:]
    wanted = format or ending
    if wanted not in READERS:
        if Path(path).is_dir():
            raise IsADirectoryError(f"{path} is a directory, not a file")
        if not Path(path).exists():
            raise FileNotFoundError(f"there is no file {path}")
        raise ValueError(f"{path}: unknown format {wanted!r}{did_you_mean(wanted, READERS)}")
    return READERS[wanted](path, **options)


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
    check_bad(bad)
    report = Report("the dataset")

    def rows() -> Iterator[Pair]:
        for row in dataset:
            report.lines += 1
            sides = _cell(row, source), _cell(row, target)
            wrong = [
                name
                for name, text in zip((source, target), sides, strict=True)
                if not isinstance(text, str) or not text.strip()
            ]
            if wrong:
                report.add(report.lines, f"no text in {' or '.join(map(repr, wrong))}")
            else:
                yield sides
        report.check(bad)

    return Pairs.collect(rows(), report, store=store)


def _read(path: str | Path, parse: Parse, bad: Bad, store: str | Path | None) -> Pairs:
    check_bad(bad)
    report = Report(path)

    def rows() -> Iterator[Pair]:
        for number, raw in lines(path):
            try:
                line = _decoded(raw, "line")
                if not line.strip():
                    raise ValueError("an empty line")
                pair = parse(line)
                if pair is None:
                    continue
                pair = _checked(*pair)
            except ValueError as error:
                report.add(number, str(error))
            else:
                yield pair
            report.lines += 1
        report.check(bad)

    return Pairs.collect(rows(), report, store=store)


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


def _columns(count: int) -> str:
    return f"{count} column{'s' if count != 1 else ''}"


def _cell(row: dict[str, Any], column: str) -> Any:
    cell: Any = row
    for key in column.split("."):
        if not isinstance(cell, dict) or key not in cell:
            known = list(cell) if isinstance(cell, dict) else []
            raise ValueError(f"the dataset has no column {column!r}{did_you_mean(key, known)}")
        cell = cell[key]
    return cell
