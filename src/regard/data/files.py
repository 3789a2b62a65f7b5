"""Data files, possibly damaged or hostile: lines, npz arrays, and a report of bad lines."""

import codecs
import gzip
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np

from regard.core.names import did_you_mean

GZIP = b"\x1f\x8b"  # the first bytes of a gzip file,
ZSTD = b"\x28\xb5\x2f\xfd"  # and of a zstd file
COMPRESSED = (".gz", ".zst")  # endings that come after that of the format
BYTE_ORDER_MARKS = (  # the first bytes of a file, and its encoding; of UTF-32 before UTF-16
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, or a byte that was not decoded
NULL = "a null character: text has none; if the file is UTF-16 or UTF-32, choose data.encoding"
LONGEST_LINE = 256 << 20  # characters
MOST_EXPANSION = 100  # times the size of a compressed file,
SMALL = 256 << 20  # or this many bytes
SHOWN = 20  # bad lines that are reported by number; the others are counted
FEW = 3  # or this many, if all have the same reason

Bad = Literal["refuse", "skip"]


def readable(path: str | Path) -> Path:
    """The path of an existing file.

    Raises:
        FileNotFoundError, IsADirectoryError: if the file does not exist
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file")
    if not path.is_file():
        raise FileNotFoundError(f"file {path} does not exist{nearest_file(path)}")
    return path


def nearest_file(path: Path) -> str:
    """How an error about a missing file goes on: a file beside it with a similar name."""
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def lines(path: str | Path, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text without the line end) of every line of a file.

    Only a line feed ends a line, with or without a carriage return before it: U+2028 and the
    like stay inside, so that aligned files stay aligned. Bytes that cannot be decoded become
    surrogates, so that their line alone is bad.

    Args:
        path: the file, which may be compressed
        encoding: of a file without a byte order mark; by default UTF-8

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: with the name of the file
    """
    path = readable(path)
    number = size = 0
    try:
        with open_file(path) as stream, decoded(stream, encoding) as text:
            while line := text.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise ValueError(f"{path}, line {number}, has over {LONGEST_LINE:,} characters")
                size += len(line)
                check_expansion(path, size)
                yield number, line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:  # of UTF-16 and UTF-32, where nothing after it is certain
        raise ValueError(
            f"{path}, after line {number}, is not {error.encoding}: {error.reason}"
        ) from None
    except (EOFError, OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:  # not of gzip or zstd
            raise
        raise ValueError(f"{path} is damaged or truncated: {error}") from error


def decoded(stream: BinaryIO, encoding: str | None = None) -> io.TextIOWrapper:
    """The text of a stream, by its byte order mark if it has one, with the line ends as they are.

    Args:
        stream: at its start
        encoding: of a stream without a mark; by default UTF-8

    Raises:
        ValueError: if the encoding is unknown
    """
    buffered: Any = stream if hasattr(stream, "peek") else io.BufferedReader(cast(Any, stream))
    start = buffered.peek(4)
    named = next((name for mark, name in BYTE_ORDER_MARKS if start.startswith(mark)), encoding)
    try:
        return io.TextIOWrapper(buffered, named or "utf-8", "surrogateescape", newline="\n")
    except LookupError:
        known = ("utf-8", "utf-16", "utf-16-le", "cp949", "euc-kr", "cp1252", "latin-1", "gb18030")
        raise ValueError(
            f"data.encoding = {encoding!r} is not a known encoding of texts"
            f"{did_you_mean(str(encoding), known)}"
        ) from None


def open_file(path: Path) -> BinaryIO:
    """Open a file that may be compressed by gzip or zstd, detected by its first bytes."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == ZSTD:
        import pyarrow as pa  # type: ignore[import-untyped]

        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    return cast(BinaryIO, gzip.open(path)) if start[:2] == GZIP else path.open("rb")


def format_of(path: str | Path) -> str:
    """The ending of a file's name, without that of its compression.

    >>> format_of("pairs.CSV.gz"), format_of("pairs")
    ('csv', '')
    """
    path = Path(path)
    return Path(path.stem if path.suffix in COMPRESSED else path.name).suffix[1:].lower()


def text_lines(path: str | Path, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of every line of a file whose lines are all text.

    Raises:
        ValueError: with the line and the character, if it is in another encoding
    """
    for number, line in lines(path, encoding):
        if wrong := SURROGATE.search(line):
            raise ValueError(
                f"{path}, line {number}, is not {encoding or 'UTF-8'} at character "
                f"{wrong.start() + 1}"
            )
        if "\0" in line:
            raise ValueError(f"{path}, line {number}, has {NULL}")
        yield number, line


def check_expansion(path: Path, size: int) -> None:
    """Refuse a compressed file that expands to a size out of proportion.

    Raises:
        ValueError: if the size is over 256 MiB and over 100 times that of the file
    """
    if size > max(SMALL, MOST_EXPANSION * path.stat().st_size):
        raise ValueError(
            f"{path} would expand to {size:,} bytes, more than {MOST_EXPANSION} times its size"
        )


def read_npz(path: str | Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """All arrays of an npz file, without pickle.

    Args:
        names: arrays that it must have

    Raises:
        ValueError: if it is damaged, lacks one of them, or would expand without proportion
    """
    path = readable(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an npz file, or it is truncated")
    try:
        with zipfile.ZipFile(path) as archive:
            check_expansion(path, sum(entry.file_size for entry in archive.infolist()))
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [name for name in names if name not in file.files]
            if missing:
                raise ValueError(f"it has no array {' and no array '.join(missing)}")
            return {name: file[name] for name in file.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        message = str(error)
        raise ValueError(message if str(path) in message else f"{path}: {message}") from error


class Report:
    """The number of lines that were read, and the bad ones by line number and reason.

    >>> report = Report("pairs.tsv")
    >>> report.lines = 5
    >>> report.add(2, "1 column instead of 2")
    >>> report.add(4, "the target is empty")
    >>> print(report)
    pairs.tsv: 2 of 5 lines are bad: line 2 (1 column instead of 2), line 4 (the target is empty)
    >>> report.count
    2
    """

    def __init__(self, name: str | Path) -> None:
        self.name = str(name)
        self.unit = "line"  # or "row"
        self.advice = ""  # the setting to change if all lines are bad
        self.lines = 0
        self.reasons: Counter[str] = Counter()
        self.examples: list[tuple[int, str]] = []  # the first SHOWN, (line number from 1, reason)

    @property
    def count(self) -> int:
        """How many lines are bad."""
        return self.reasons.total()

    def add(self, line: int, reason: str) -> None:
        """Record a bad line by its number, counted from 1."""
        self.reasons[reason] += 1
        if len(self.examples) < SHOWN:
            self.examples.append((line, reason))

    def check(self, bad: Bad) -> None:
        """Raise if bad lines are not to be skipped, or if nothing is left.

        Raises:
            ValueError: with line numbers and reasons
        """
        if self.lines == 0:
            raise ValueError(f"{self.name} is empty: expected at least one {self.unit}")
        if self.count == self.lines:
            advice = f"; {self.advice}" if self.advice else ""
            raise ValueError(f"all {self.unit}s are bad. {self}{advice}")
        if self.count and bad == "refuse":
            raise ValueError(f'{self}; correct them, or skip them with data.bad="skip"')

    def to_json(self) -> dict[str, Any]:
        """The report in types that JSON can represent."""
        return {**vars(self), "reasons": dict(self.reasons)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Report":
        """The inverse of `to_json`."""
        report = cls(values["name"])
        vars(report).update(values)
        report.reasons = Counter(values["reasons"])
        report.examples = [(line, reason) for line, reason in values["examples"]]
        return report

    def __str__(self) -> str:
        if not self.count:
            return f"{self.name}: {self.lines} {self.unit}s, all good"
        if len(self.reasons) == 1 and self.count > 1:
            numbers = ", ".join(str(line) for line, _ in self.examples[:FEW])
            shown, more = f"{self.examples[0][1]} ({self.unit}s {numbers}", self.count - FEW
        else:
            shown = ", ".join(f"{self.unit} {line} ({reason})" for line, reason in self.examples)
            more = self.count - len(self.examples)
        shown += f", and {more:,} more" if more > 0 else ""
        shown += ")" if len(self.reasons) == 1 and self.count > 1 else ""
        are = " is" if self.lines == 1 else "s are"
        return f"{self.name}: {self.count} of {self.lines} {self.unit}{are} bad: {shown}"


def check_bad(bad: str) -> None:
    """Raise `ValueError` for an unknown way of handling bad lines."""
    if bad not in ("refuse", "skip"):
        raise ValueError(f"bad must be 'refuse' or 'skip', got {bad!r}")
