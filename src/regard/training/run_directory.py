"""A run directory: created for a new run or opened to resume one, and locked by one process.

`manifest.json` records what a run was started with: its configuration, fingerprints of its data,
checksums of the files of its task, and versions. A resumed run is checked against it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from glob import escape
from pathlib import Path
from typing import Any

from regard.system.files import UNFINISHED, atomic_file, checksum, exclusive, remove_directory
from regard.training.checkpoint import (
    OtherVersionError,
    checkpoints,
    read_json,
    remove_leftovers,
    write_json,
)
from regard.training.config import (
    FILE_KEYS,
    Config,
    changed_keys,
    read_config,
    versions,
    write_config,
)
from regard.training.task import Task

FORMAT = 3  # of a manifest; 3 has scaled embeddings and general scores
MANIFEST = "manifest.json"
FIXED = ("task", "seed", "data", "model", "loss")  # tables a resumed run cannot change
CHANGING = ("config.toml", "metrics.jsonl", "model.safetensors", MANIFEST)
WRITTEN = (  # by training, below the run directory
    *("checkpoints", "checkpoints/step-*", "events", "events/events.out.tfevents*"),
    *("checkpoints/step-*/*.json", "checkpoints/step-*/*.safetensors"),
)


@contextmanager
def open_run(
    run: Path,
    config: Config,
    task: Task,
    *,
    resume: bool,
    accept_changed_data: bool = False,
    message: Callable[[str], None] = print,
) -> Iterator[Path | None]:
    """Open a run directory for writing, and return its newest checkpoint or None.

    Args:
        config: the `[training]` table may differ from that of the run to resume
        resume: whether there is a run already
        accept_changed_data: resume even if the data is not what it was
        message: called with what the user should know

    Raises:
        FileExistsError: if the directory is not empty and `resume` is False
        FileNotFoundError: if there is nothing to resume
        BlockingIOError: if another process is training into it
        ValueError: if it is a run of something else, of other data, or damaged
    """
    if not resume:
        check_free(run)
        run.mkdir(parents=True, exist_ok=True)
    elif (run / MANIFEST).exists() or not checkpoints(run):
        read_run_config(run)
    else:
        raise FileNotFoundError(
            f"{run / MANIFEST} does not exist: what the run was started with is unknown; restore "
            "it from a backup, or train a new run"
        )
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(run, wait=False))
        except BlockingIOError as error:
            raise BlockingIOError(f"another process is training into {run}") from error
        remove_leftovers(run)
        found = checkpoints(run)
        data = task.fingerprint()
        if (run / MANIFEST).exists():
            manifest = read_manifest(run)
            _check_config(run, config, manifest, message)
            _check_data(run, data, manifest["data"], accept_changed_data, message)
            _report_versions(manifest["versions"], message)
            write_config(config, run / "config.toml")
            files = manifest["files"]
        else:  # config.toml first: it marks a run that can be resumed
            write_config(config, run / "config.toml")
            task.write(run)
            files = file_checksums(run)
        manifest = {"config": _fixed(config), "training": _training(config), "data": data}
        manifest |= {"files": files, "versions": versions()}
        with atomic_file(run / MANIFEST) as part:
            write_json(part, {"format": FORMAT, **manifest})
        yield found[max(found)] if found else None


def nearest_run(run: Path) -> str:
    """How an error about a run that is not there goes on: a run beside it with a similar name."""
    names = [file.parent.name for file in run.parent.glob("*/config.toml")]
    close = get_close_matches(run.name, names, n=1)
    return f"; did you mean {run.parent / close[0]}?" if close else ""


def read_run_config(run: str | Path) -> Config:
    """The configuration of a run, checked against its manifest with all files of its task.

    Raises:
        FileNotFoundError: if it is not a run directory, or a file is missing
        ValueError: if a file is damaged or was edited
    """
    run = Path(run)
    path = run / "config.toml"
    if not path.is_file():
        what = "is a file" if run.is_file() else "does not exist"
        what = "has no config.toml" if run.is_dir() else what
        raise FileNotFoundError(f"{run} is not a run directory: it {what}{nearest_run(run)}")
    try:
        config = read_config(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged or was edited: {error}") from error
    if (run / MANIFEST).exists():
        manifest = read_manifest(run)
        for name, was, now in changed_keys(manifest["config"], _fixed(config)):
            raise ValueError(
                f"{path} was edited: {name} is {_shown(now)}, but the run was started with "
                f"{_shown(was)}; undo the edit, or train a new run"
            )
        for name, expected in manifest["files"].items():
            file = run / Path(name).name
            if not file.is_file():
                raise FileNotFoundError(f"{file} does not exist: restore it from a backup")
            if checksum(file) != expected:
                raise ValueError(
                    f"{file} is damaged or was edited: its checksum is not that of {MANIFEST}; "
                    "restore it from a backup, or train a new run"
                )
    return config


def stored_file(run: Path | None, name: str) -> Path | None:
    """A file that the task wrote into a run; None without a run, or if it never started."""
    return run / name if run is not None and (run / MANIFEST).exists() else None


def check_free(run: Path) -> None:
    """Raise `FileExistsError` if a directory for a new run is not empty."""
    if run.exists() and not run.is_dir():
        raise FileExistsError(f"{run} is a file, not a directory: choose another one with --out")
    if run.is_dir() and any(not path.name.startswith(UNFINISHED) for path in run.iterdir()):
        what = "holds a run" if (run / "config.toml").exists() else "is not empty"
        raise FileExistsError(
            f"{run} {what}: resume it with --resume, or choose another directory with --out"
        )


def remove_run(run: Path, also: Sequence[str] = ()) -> None:
    """Remove a run, if the directory holds nothing that regard did not write.

    Args:
        also: patterns of further files that the caller wrote, relative to the run

    Raises:
        ValueError: if it is not marked as a run, or holds other files; nothing is removed then
    """
    if not (run / MANIFEST).is_file():
        raise ValueError(f"{run} has no {MANIFEST}, so it is not removed: remove it yourself")
    remove_leftovers(run)
    files = read_json(run / MANIFEST, FORMAT, *range(1, FORMAT))["files"]
    patterns = (*CHANGING, *map(escape, files), *WRITTEN, *also)
    others = set(run.rglob("*")) - {path for pattern in patterns for path in run.glob(pattern)}
    if others:
        names = ", ".join(sorted(str(path.relative_to(run)) for path in others)[:3])
        raise ValueError(f"{run} holds files that regard did not write ({names}): move them away")
    remove_directory(run)


def file_checksums(run: Path) -> dict[str, str]:
    """Return the checksums of the files of a directory that stay as they were written."""
    return {
        path.name: checksum(path)
        for path in sorted(run.iterdir())
        if path.is_file() and path.name not in CHANGING and not path.name.startswith(UNFINISHED)
    }


def read_manifest(run: Path) -> dict[str, Any]:
    """Return what a run was started with.

    Raises:
        FileNotFoundError: if the manifest does not exist
        OtherVersionError: if it is of another version of regard
        ValueError: if it is damaged
    """
    try:
        return read_json(run / MANIFEST, FORMAT)
    except OtherVersionError:
        raise
    except ValueError as error:
        raise ValueError(f"{error}; restore it from a backup, or train a new run") from error


def _fixed(config: Config) -> dict[str, Any]:
    """What a resumed run cannot change; data may be moved, its content is compared."""
    values = config.model_dump(mode="json", include=set(FIXED), exclude_none=True)
    values["data"] = {
        key: value
        for key, value in values["data"].items()
        if not (key in FILE_KEYS and isinstance(value, str | list))
    }
    return values


def _training(config: Config) -> dict[str, Any]:
    return config.training.model_dump(mode="json", exclude_none=True)


def _check_config(
    run: Path, config: Config, manifest: dict[str, Any], message: Callable[[str], None]
) -> None:
    edited = _training(read_run_config(run))
    for name, was, now in changed_keys(manifest["training"], edited, "training."):
        message(
            f"note: {run / 'config.toml'} was edited: {name} was {_shown(was)}, is {_shown(now)}"
        )
    for name, was, now in changed_keys(manifest["config"], _fixed(config)):
        raise ValueError(
            f"{run} was started with {name} = {_shown(was)}; a resumed run cannot change it to "
            f"{_shown(now)}: choose another directory with --out"
        )


def _check_data(
    run: Path,
    now: dict[str, str],
    before: dict[str, str],
    accept: bool,
    message: Callable[[str], None],
) -> None:
    changes = [f"{name}: {was} → {new}" for name, was, new in changed_keys(before, now)]
    if not changes:
        return
    what = f"the data has changed since {run} was started ({'; '.join(changes)})"
    if not accept:
        raise ValueError(
            f"{what}: restore it, train a new run, or accept the change with "
            "--accept-changed-data (in Python accept_changed_data=True)"
        )
    message(f"note: {what}, which is accepted; tokenizers and classes stay those of the run")


def _report_versions(before: dict[str, str], message: Callable[[str], None]) -> None:
    changes = [f"{name} {was} → {now}" for name, was, now in changed_keys(before, versions())]
    if changes:
        message(
            f"note: the run was started with other versions ({', '.join(changes)}); its numbers "
            "may differ slightly from those of an undisturbed run"
        )


def _shown(value: Any) -> str:
    return "its default" if value is None else repr(value)
