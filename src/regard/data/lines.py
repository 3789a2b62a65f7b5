"""Lines of a text file, plain or gzipped, one at a time."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, bytes without the line end) of every line of a file.

    Only a line feed ends a line, with or without a carriage return before it: U+2028 and the
    like stay inside, so that aligned files stay aligned. A byte order mark is dropped.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: in one sentence that names the file
    """
    path = readable(path)
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from error


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of every line of a file in UTF-8.

    Raises:
        ValueError: in one sentence with the line and the byte, if it is in another encoding
    """
    for number, raw in lines(path):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}, is not UTF-8 at byte {error.start + 1}"
            ) from None


def readable(path: str | Path) -> Path:
    """The path of a file that is there, or one sentence about what is there instead."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return path
