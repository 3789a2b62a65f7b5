"""Files that are there whole or not at all, whatever happens while they are written."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".unfinished-"  # how the names of what is being written, or removed, begin


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; when done, the file is on the disk and is moved to its place."""
    part = path.with_name(UNFINISHED + path.name)
    try:
        yield part
        _sync(part)
        part.replace(path)
        _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to write into; when done, all of it is on the disk and is moved to its place."""
    part = path.with_name(UNFINISHED + path.name)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        for file in part.iterdir():
            _sync(file)
        _sync(part)
        part.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Remove a folder so that nobody ever finds half of it under its name."""
    part = path.with_name(UNFINISHED + path.name)
    shutil.rmtree(part, ignore_errors=True)
    path.rename(part)
    shutil.rmtree(part)


def sweep(folder: Path) -> None:
    """Remove what a killed process was still writing or removing."""
    for left in folder.glob(f"{UNFINISHED}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def _sync(path: Path) -> None:
    """Wait until the disk has it: a new name may otherwise be there before the content is."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
