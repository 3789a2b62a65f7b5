"""Checkpoints: everything a run needs to continue exactly, written completely or not at all.

`checkpoints/step-N/` holds `model.safetensors`, `optimizer.safetensors` and `state.json`, each with
a checksum. It is written under another name, flushed to disk, and then renamed.
"""

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from regard.core.files import (
    atomic_directory,
    atomic_file,
    remove_directory,
    remove_unfinished,
)
from regard.training.optimizer import AdamW
from regard.training.random_state import random_state, restore_random
from regard.training.state import State
from regard.training.weights import put_weights, read_tensors, weights, write_tensors

FORMAT = 2  # of a checkpoint; others are refused


def checkpoints(run: Path) -> dict[int, Path]:
    """The checkpoints of a run by step, in ascending order."""
    found = [(path.name.removeprefix("step-"), path) for path in run.glob("checkpoints/step-*")]
    return dict(sorted((int(number), path) for number, path in found if number.isdecimal()))


def save_checkpoint(run: Path, state: State, model: nn.Module, optimizer: AdamW) -> None:
    """Write a checkpoint; if that fails, earlier ones are untouched.

    If there is one of this step already, only its state is replaced: evaluations were added.
    """
    path = run / "checkpoints" / f"step-{state.step}"
    record = {"format": FORMAT, "state": state.to_json(), "random": random_state()}
    try:
        if path.is_dir():
            with atomic_file(path / "state.json") as part:
                write_json(part, record)
            return
        path.parent.mkdir(exist_ok=True)
        with atomic_directory(path) as directory:
            write_tensors(directory / "model.safetensors", weights(model), [state.step])
            write_tensors(directory / "optimizer.safetensors", optimizer.tensors(), [state.step])
            write_json(directory / "state.json", record)
    except OSError as error:
        last = max(checkpoints(run), default=None)
        kept = f"; the last good one is step-{last}" if last is not None else ""
        raise OSError(f"could not save checkpoint {path}: {error}{kept}") from error


def load_checkpoint(path: Path, model: nn.Module, optimizer: AdamW) -> State:
    """Restore model, optimizer and random generators from a checkpoint.

    Raises:
        ValueError: if it is damaged, of another model or of another version of regard
    """
    with _earlier_checkpoint_in_error(path):
        record = read_json(path / "state.json", FORMAT)
        tensors = read_tensors(path / "model.safetensors")
        moments = read_tensors(path / "optimizer.safetensors")
    put_weights(model, tensors, str(path / "model.safetensors"))
    optimizer.load_tensors(moments)
    restore_random(record["random"])
    return State.from_json(record["state"])


@contextmanager
def _earlier_checkpoint_in_error(path: Path) -> Iterator[None]:
    """Append the newest earlier checkpoint to the error about a damaged one."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        step = int(path.name.removeprefix("step-"))
        earlier = [other for other in checkpoints(path.parents[1]) if other < step]
        advice = (
            f"remove {path} to resume from step-{max(earlier)}"
            if earlier
            else "restore it from a backup, or train a new run"
        )
        raise ValueError(f"{error}; {advice}") from error


def prune(run: Path, keep: int, also: Collection[int] = ()) -> None:
    """Remove all checkpoints but the latest ones and those that are needed for the average."""
    found = checkpoints(run)
    for step in list(found)[:-keep]:
        if step not in also:
            remove_directory(found[step])


def remove_leftovers(run: Path) -> None:
    """Remove what a killed process left half-written."""
    for directory in (run, run / "checkpoints", *checkpoints(run).values()):
        remove_unfinished(directory)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON object with its checksum."""
    path.write_text(json.dumps({**record, "sha256": _checksum(record)}), encoding="utf-8")


def read_json(path: Path, version: int) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Raises:
        FileNotFoundError: if there is no such file
        ValueError: if it is damaged, or its "format" is not this version
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        checksum, written = record.pop("sha256", None), record["format"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: not JSON of a run") from error
    if written != version:
        raise ValueError(
            f"{path} was written by another version of regard (format {written}, this one reads "
            f"{version}): resume it with that version, or train a new run"
        )
    if checksum != _checksum(record):
        raise ValueError(f"{path} is damaged: its checksum does not match its content")
    return record


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()
