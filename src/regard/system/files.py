"""Atomic files and directories: complete under their final name, or not there at all."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.system.posix import lock, sync

UNFINISHED = ".unfinished-"  # prefix of everything that is still being written or removed


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Give errors of writing a file its name: they have none, or that of an unfinished file."""
    try:
        yield
    except OSError as error:
        named = error.filename is not None and UNFINISHED not in str(error.filename)
        if named or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; on success the content is flushed to disk and takes its final name.

    The file keeps the permissions of the one it replaces, or gets those of the umask. A symbolic
    link stays a link. What is not a regular file, such as /dev/stdout, is written to and stays.

    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with atomic_file(target) as part:
    ...     _ = part.write_text("whole", "utf-8")
    >>> target.read_text("utf-8")
    'whole'
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        yield from _through_device(path)
        return
    path = path.resolve()
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file")
    # the suffix stays last: np.savez and matplotlib choose the format by it
    part = path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")
    with named_errors(path):
        try:
            part.touch()
            mode = stat.S_IMODE((path if path.exists() else part).stat().st_mode)
            yield part
            part.chmod(mode)
            sync(part)  # a new name may otherwise be there before its content
            part.replace(path)
            sync(path.parent)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """A directory to write into; on success all of it is flushed and takes its final name."""
    part = path.with_name(UNFINISHED + path.name)
    shutil.rmtree(part, ignore_errors=True)
    with named_errors(path):
        part.mkdir()
        try:
            yield part
            for file in part.iterdir():
                sync(file)
            sync(part)
            part.rename(path)
            sync(path.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def exclusive(directory: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a directory, which is created, against other processes; a kill releases the lock.

    Without `wait`, a directory that is locked raises `BlockingIOError`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    unlock = lock(directory, wait=wait)
    try:
        yield
    finally:
        unlock()


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_directory(path: Path) -> None:
    """Remove a directory such that no half of it is ever found under its name."""
    part = path.with_name(UNFINISHED + path.name)
    shutil.rmtree(part, ignore_errors=True)
    path.rename(part)
    shutil.rmtree(part)


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed process was still writing or removing."""
    for left in directory.glob(f"{UNFINISHED}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def _through_device(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        part = Path(directory) / (path.name or "content")
        part.touch()
        yield part
        with part.open("rb") as content, path.open("wb") as device:
            shutil.copyfileobj(content, device)
