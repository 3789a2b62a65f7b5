"""Checkpoints: all that a run needs to go on as if nothing had happened, written whole or not.

`checkpoints/step-N/` holds `model.safetensors`, `optimizer.safetensors` and `state.json`. It is
written under another name, synced to the disk, and then renamed.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from regard.core.files import atomic_directory, remove_directory, remove_unfinished
from regard.training.optimizer import AdamW
from regard.training.random_state import random_state, restore_random
from regard.training.state import State
from regard.training.weights import put_weights, read_tensors, weights, write_tensors

FORMAT = 1  # of a checkpoint; a later one is refused


def checkpoints(run: Path) -> dict[int, Path]:
    """The checkpoints of a run by step, upwards."""
    found = [(path.name.removeprefix("step-"), path) for path in run.glob("checkpoints/step-*")]
    return dict(sorted((int(number), path) for number, path in found if number.isdecimal()))


def save_checkpoint(run: Path, state: State, model: nn.Module, optimizer: AdamW) -> Path:
    """Write a checkpoint of this moment; if that fails, earlier ones are untouched."""
    path = run / "checkpoints" / f"step-{state.step}"
    path.parent.mkdir(exist_ok=True)
    record = {"format": FORMAT, "state": state.to_json(), "random": random_state()}
    try:
        with atomic_directory(path) as part:
            write_tensors(part / "model.safetensors", weights(model))
            write_tensors(part / "optimizer.safetensors", optimizer.tensors())
            (part / "state.json").write_text(json.dumps(record), encoding="utf-8")
    except OSError as error:
        last = max(checkpoints(run), default=None)
        kept = f"; the last good one is step-{last}" if last is not None else ""
        raise OSError(f"could not save checkpoint {path}: {error}{kept}") from error
    return path


def load_checkpoint(path: Path, model: nn.Module, optimizer: AdamW) -> State:
    """Put model, optimizer and random generators where a checkpoint left them.

    Raises:
        ValueError: if it is damaged, of another model or of a later version of regard
    """
    with _way_back(path):
        record = _read_json(path / "state.json")
    if record["format"] != FORMAT:
        raise ValueError(
            f"{path} was written by another version of regard (format {record['format']}, this one "
            f"reads {FORMAT}): resume it with that version, or train anew"
        )
    with _way_back(path):
        tensors = read_tensors(path / "model.safetensors")
        moments = read_tensors(path / "optimizer.safetensors")
    put_weights(model, tensors, str(path / "model.safetensors"))
    optimizer.put(moments)
    restore_random(record["random"])
    return State.from_json(record["state"])


@contextmanager
def _way_back(path: Path) -> Iterator[None]:
    """Add to the news of a damaged checkpoint that there is an earlier one."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        step = int(path.name.removeprefix("step-"))
        earlier = [other for other in checkpoints(path.parents[1]) if other < step]
        way = f"; remove {path} to go on from step-{max(earlier)}" if earlier else ""
        raise ValueError(f"{error}{way}") from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if not isinstance(record, dict) or "format" not in record:
        raise ValueError(f"{file} is damaged: it names no format")
    return record


def prune(run: Path, keep: int, also: Collection[int] = ()) -> None:
    """Remove checkpoints but the latest ones and those that are wanted for the average."""
    found = checkpoints(run)
    for step in list(found)[:-keep]:
        if step not in also:
            remove_directory(found[step])


def sweep_run(run: Path) -> None:
    """Remove what a killed process left half-written."""
    remove_unfinished(run)
    remove_unfinished(run / "checkpoints")
