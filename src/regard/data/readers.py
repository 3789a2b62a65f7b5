"""Readers of paired text: tables, aligned files, dictionaries, fixed width."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard.data.files import SURROGATE, Bad, Report, lines
from regard.data.frames import read_frames
from regard.data.pairs import Pairs
from regard.data.tables import (
    TABLES,
    Columns,
    find_format,
    good_rows,
    not_decoded,
    pick_columns,
    read_columns,
    text_rows,
)

Store = str | Path | None


def read_pairs(path: str | Path, *, format: str | None = None, **options: Any) -> Pairs:
    """Read pairs from a file of any known format, or a directory of `save_to_disk`.

    Args:
        path: the file, plain or compressed (`.gz`, `.zst`)
        format: a name of `READERS`; by default, the ending of the name before that of compression
        options: what the reader of that format takes, such as `bad="skip"`
    """
    wanted = find_format(path, format, READERS)
    reader = READERS[wanted]
    for name in options.keys() - inspect.signature(reader).parameters.keys():
        raise ValueError(f"{path}: the format {wanted} takes no data.{name}; leave it out")
    return reader(path, format=wanted, **options) if wanted in TABLES else reader(path, **options)


def read_table(
    path: str | Path,
    *,
    format: str | None = None,
    source: int | str | None = None,
    target: int | str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    bad: Bad = "refuse",
    store: Store = None,
) -> Pairs:
    """Read two columns of a table.

    CSV has quotes where needed, TSV has none. JSON lines have an object in each line; these three
    may be compressed. Parquet files and directories of `save_to_disk` have columns.

    Args:
        path: the file or directory
        format: a name of `TABLES`; by default, by the name of the path
        source: the column or key of the source. By its name, which is in the first line of a CSV
            or TSV, and where a dot goes one level down, as in "translation.en"; or by its number,
            from 0, in a CSV or TSV without names. By default "source", and 0 in a TSV
        target: the column of the target; by default "target", and 1 in a TSV
        encoding: of a CSV, TSV or JSONL without a byte order mark; by default UTF-8
        delimiter: of a CSV or TSV; by default, the most frequent of , ; | and tab in the first
            line of a CSV, and a tab in a TSV, where spaces around another one are dropped
        bad: "refuse" raises if a row is bad, "skip" leaves it out; both are reported
        store: an Arrow file to keep the pairs in, for a corpus larger than memory
    """
    kind = find_format(path, format, TABLES)
    report = Report(path)
    defaults: tuple[int | str, ...] = (0, 1) if kind == "tsv" else ("source", "target")
    wanted = {
        "source": defaults[0] if source is None else source,
        "target": defaults[1] if target is None else target,
    }
    options: dict[str, Any] = {"encoding": encoding, "delimiter": delimiter, "bad": bad}
    rows = read_columns(path, wanted, report, format=kind, **options)
    return Pairs.collect(rows, report, store=store)


def read_text(
    path: str | Path,
    *,
    source: int | str = 0,
    target: int | str = 1,
    encoding: str | None = None,
    delimiter: str | None = None,
    bad: Bad = "refuse",
    store: Store = None,
) -> Pairs:
    """Read lines of a source and a target with a tab or ||| between them, or of fixed width.

    The first line decides which; `delimiter` may be another text.
    """
    if delimiter is None:
        first = next((line for _, line in lines(path, encoding)), "")
        delimiter = next((one for one in ("\t", "|||") if one in first), None)
    if delimiter is None:
        return read_fixed_width(path, encoding=encoding, bad=bad, store=store)
    columns: dict[str, Any] = {"source": source, "target": target, "delimiter": delimiter}
    return read_table(path, format="tsv", encoding=encoding, **columns, bad=bad, store=store)


def read_dictionary(
    path: str | Path,
    *,
    stress: bool = True,
    encoding: str | None = None,
    bad: Bad = "refuse",
    store: Store = None,
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

    return _read_lines(path, parse, encoding, bad, store)


def read_fixed_width(
    path: str | Path,
    *,
    separator: str = "_",
    encoding: str | None = None,
    bad: Bad = "refuse",
    store: Store = None,
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

    advice = (
        f"expected a tab, ||| or {separator!r} in a fixed column between source and target: choose "
        'data.delimiter or data.format, or give two aligned files as train = ["a.en", "a.de"]'
    )
    return _read_lines(path, parse, encoding, bad, store, advice)


def read_aligned(
    source: str | Path,
    target: str | Path,
    *,
    encoding: str | None = None,
    bad: Bad = "refuse",
    store: Store = None,
) -> Pairs:
    """Read pairs from the lines of two aligned files, plain or compressed."""
    report = Report(f"{source} and {target}")

    def rows() -> Iterator[tuple[int, tuple[str, str]]]:
        counts = [0, 0]
        for left, right in zip_longest(lines(source, encoding), lines(target, encoding)):
            counts[0] += left is not None
            counts[1] += right is not None
            if left is not None and right is not None:
                yield left[0], (left[1], right[1])
        if counts[0] != counts[1]:
            raise ValueError(
                f"aligned files should have the same number of lines, but {source} has "
                f"{counts[0]} and {target} has {counts[1]}"
            )

    def parse(sides: tuple[str, str]) -> tuple[str, ...] | None:
        for name, text in zip(("source", "target"), sides, strict=True):
            if SURROGATE.search(text):
                raise ValueError(not_decoded(name, encoding))
        return pick(list(sides))

    pick = Columns(report.name, {"source": 0, "target": 1}).pick
    return Pairs.collect(good_rows(rows(), parse, report, bad), report, store=store)


def from_dataset(
    dataset: Iterable[dict[str, Any]],
    *,
    source: str,
    target: str,
    bad: Bad = "refuse",
    store: Store = None,
) -> Pairs:
    """Pairs from two columns of a dataset of the `datasets` library, streamed ones included.

    Args:
        dataset: anything that yields rows as dictionaries
        source: the column of the source; a dot goes one level down, as in "translation.en"
        target: the column of the target
        bad: what to do with rows that lack a side; they are numbered from 1 in the report
        store: an Arrow file to keep the pairs in; needed for a dataset larger than memory
    """
    report = Report("the dataset")
    report.unit = "row"
    columns = Columns(report.name, {"source": source, "target": target})
    rows = pick_columns(enumerate(dataset, start=1), columns, report, bad)
    return Pairs.collect(rows, report, store=store)


READERS: dict[str, Callable[..., Pairs]] = {
    **dict.fromkeys(TABLES, read_table),
    "dict": read_dictionary,
    "txt": read_text,
    "npz": read_frames,
}


def _read_lines(
    path: str | Path,
    parse: Callable[[str], tuple[str, str] | None],
    encoding: str | None,
    bad: Bad,
    store: Store,
    advice: str = "",
) -> Pairs:
    """Read a file line by line.

    Args:
        parse: of a line; returns None for a comment, raises ValueError with what is wrong
        advice: the settings to change if all lines are bad
    """
    report = Report(path)
    report.advice = advice
    pick = Columns(path, {"source": 0, "target": 1}).pick

    def parsed(line: str | ValueError) -> tuple[str, ...] | None:
        if isinstance(line, ValueError):
            raise line
        pair = parse(line)
        return None if pair is None else pick(list(pair))

    rows = good_rows(text_rows(path, encoding), parsed, report, bad)
    return Pairs.collect(rows, report, store=store)
