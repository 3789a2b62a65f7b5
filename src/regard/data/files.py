"""Data files, plain or compressed, possibly damaged or hostile: their expansion is limited."""

import gzip
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LONGEST_LINE = 256 << 20  # bytes
MOST_EXPANSION = 100  # times the size of a compressed file,
SMALL = 256 << 20  # or this many bytes


def readable(path: str | Path) -> Path:
    """The path of an existing file.

    Raises:
        FileNotFoundError, IsADirectoryError: if there is no such file
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return path


def lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, bytes without the line end) of every line of a file.

    Only a line feed ends a line, with or without a carriage return before it: U+2028 and the
    like stay inside, so that aligned files stay aligned. A byte order mark is dropped.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: with the name of the file
    """
    path = readable(path)
    try:
        with gzip.open(path, "rb") if is_gzip(path) else path.open("rb") as stream:
            number = 0
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise ValueError(f"{path}, line {number}, has over {LONGEST_LINE:,} bytes")
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged or truncated: {error}") from error


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text) of every line of a file in UTF-8.

    Raises:
        ValueError: with the line and the byte, if it is in another encoding
    """
    for number, raw in lines(path):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}, is not UTF-8 at byte {error.start + 1}"
            ) from None


def is_gzip(path: Path) -> bool:
    """Whether a file is gzipped, by its first bytes."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


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
