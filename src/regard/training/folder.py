"""A run's folder: made for a new run, or opened to go on with one; held by one process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.core.files import UNFINISHED
from regard.training.checkpoint import checkpoints, sweep_run
from regard.training.config import Config, read_config, write_config
from regard.training.task import Task

FIXED = ("task", "seed", "data", "model", "loss")  # what a resumed run cannot change


@contextmanager
def open_run(run: Path, config: Config, task: Task, *, resume: bool) -> Iterator[Path | None]:
    """A run's folder to write into: the newest checkpoint, or None if there is none yet.

    Args:
        config: of a resumed run, the `[training]` table may differ from what it was
        resume: whether a run is there already

    Raises:
        FileExistsError: if something is there, and it is not to be resumed
        FileNotFoundError: if there is nothing to resume
        BlockingIOError: if another process is training into it
        ValueError: if it is a run of something else
    """
    if resume:
        _check_same(run, config)
    else:
        check_free(run)
        run.mkdir(parents=True, exist_ok=True)
    with _alone(run):
        sweep_run(run)
        found = checkpoints(run)
        write_config(config, run / "config.toml")
        if not found:
            task.write(run)
        yield found[max(found)] if found else None


def read_run_config(run: str | Path) -> Config:
    """What a run was made with.

    Raises:
        FileNotFoundError, ValueError: if it is no run, or its configuration is damaged
    """
    path = Path(run) / "config.toml"
    if not path.is_file():
        what = "is a file" if Path(run).is_file() else "is not there"
        what = "has no config.toml in it" if Path(run).is_dir() else what
        raise FileNotFoundError(f"{run} is no run of regard train: it {what}")
    return read_config(path)


def check_free(run: Path) -> None:
    """Raise `FileExistsError` if there is something in a folder for a new run."""
    if run.exists() and not run.is_dir():
        raise FileExistsError(f"{run} is a file, a run is a folder: choose another with --out")
    if run.is_dir() and any(not path.name.startswith(UNFINISHED) for path in run.iterdir()):
        what = "holds a run" if (run / "config.toml").exists() else "is a folder with other files"
        raise FileExistsError(
            f"{run} {what} already: resume it with --resume, or choose another place with --out"
        )


def _check_same(run: Path, config: Config) -> None:
    before = read_run_config(run)
    for name in FIXED:
        was, now = getattr(before, name), getattr(config, name)
        if was != now:
            raise ValueError(
                f"{run} was begun with {name} = {was!r}; a resumed run cannot change it to "
                f"{now!r}: choose another place with --out"
            )


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """Hold the folder, so that no second process trains into it; a kill lets go of it."""
    try:
        import fcntl
    except ImportError:  # there is no such lock on this system
        yield
        return
    handle = os.open(run, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(f"another process is training into {run}") from error
        yield
    finally:
        os.close(handle)
