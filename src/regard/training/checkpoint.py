"""Checkpoints: everything a run needs to continue exactly, written completely or not at all.

`checkpoints/step-N/` holds `model.safetensors`, `optimizer.safetensors` and `state.json`, each with
a checksum; of a sharded model a file for each process, and `state.json`. It is written under
another name, flushed to disk, and then renamed.
"""

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.system.files import (
    UNFINISHED,
    atomic_directory,
    atomic_file,
    remove_directory,
    remove_unfinished,
)
from regard.training.optimizer import AdamW
from regard.training.processes import gathered, on_first, rank
from regard.training.random_state import random_state, restore_random
from regard.training.state import State
from regard.training.weights import (
    is_sharded,
    put_weights,
    read_tensors,
    weights,
    write_tensors,
)

FORMAT = 2  # of a checkpoint; others are refused


def checkpoints(run: Path) -> dict[int, Path]:
    """The checkpoints of a run by step, in ascending order."""
    found = [(path.name.removeprefix("step-"), path) for path in run.glob("checkpoints/step-*")]
    return dict(sorted((int(number), path) for number, path in found if number.isdecimal()))


def save_checkpoint(run: Path, state: State, model: nn.Module, optimizer: AdamW) -> None:
    """Write a checkpoint; if that fails, earlier ones are untouched. Called in every process.

    If there is one of this step already, only its state is replaced: evaluations were added.
    """
    path = run / "checkpoints" / f"step-{state.step}"
    own, *others = gathered(random_state())
    record = {"format": FORMAT, "state": state.to_json(), "random": own}
    if others:
        record["random_of_others"] = others  # by rank, from 1
    try:
        if on_first(path.is_dir):
            on_first(lambda: _replace_state(path, record))
        elif is_sharded(model):
            _save_shards(path, record, model, optimizer)
        else:
            on_first(lambda: _save_whole(path, record, model, optimizer))
    except OSError as error:
        last = max(checkpoints(run), default=None)
        kept = f"; the last good one is step-{last}" if last is not None else ""
        raise OSError(f"could not save checkpoint {path}: {error}{kept}") from error


def _replace_state(path: Path, record: dict[str, Any]) -> None:
    checksums = read_json(path / "state.json", FORMAT).get("shards")
    with atomic_file(path / "state.json") as part:
        write_json(part, record if checksums is None else {**record, "shards": checksums})


def _save_whole(path: Path, record: dict[str, Any], model: nn.Module, optimizer: AdamW) -> None:
    step = record["state"]["step"]
    path.parent.mkdir(exist_ok=True)
    with atomic_directory(path) as directory:
        write_tensors(directory / "model.safetensors", weights(model), [step])
        write_tensors(directory / "optimizer.safetensors", optimizer.tensors(), [step])
        write_json(directory / "state.json", record)


def _save_shards(path: Path, record: dict[str, Any], model: nn.Module, optimizer: AdamW) -> None:
    from regard.training.shards import shard_checksums, write_shards

    directory = path.with_name(UNFINISHED + path.name)  # that of `atomic_directory`
    with ExitStack() as stack:

        def begin() -> None:
            path.parent.mkdir(exist_ok=True)
            stack.enter_context(atomic_directory(path))

        def end() -> None:
            checksums = shard_checksums(directory)
            write_json(directory / "state.json", {**record, "shards": checksums})
            stack.close()

        on_first(begin)
        write_shards(directory, _shards(model, optimizer))
        on_first(end)


def _shards(model: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    """All tensors of a sharded checkpoint by name."""
    own = {f"model/{name}": tensor for name, tensor in weights(model).items()}
    return own | {f"optimizer/{name}": tensor for name, tensor in optimizer.tensors().items()}


def load_checkpoint(path: Path, model: nn.Module, optimizer: AdamW) -> State:
    """Restore model, optimizer and random generators from a checkpoint, sharded or not.

    Raises:
        OtherVersionError: if it is of another version of regard
        ValueError: if it is damaged, or of another model
    """
    with _earlier_checkpoint_in_error(path):
        record = read_json(path / "state.json", FORMAT)
        if "shards" in record:
            from regard.training.shards import read_shards

            read_shards(path, _shards(model, optimizer), record["shards"])
        else:
            tensors = read_tensors(path / "model.safetensors")
            moments = read_tensors(path / "optimizer.safetensors")
    if "shards" not in record:
        put_weights(model, tensors, str(path / "model.safetensors"))
        optimizer.load_tensors(moments)
    states = [record["random"], *record.get("random_of_others", [])]
    if rank() < len(states):  # more processes than before: theirs are new
        restore_random(states[rank()])
    return State.from_json(record["state"])


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, in full, sharded or not.

    Raises:
        FileNotFoundError: if there is none
        ValueError: if it is damaged
    """
    if (path / "model.safetensors").is_file() or not path.is_dir():
        return read_tensors(path / "model.safetensors")
    from regard.training import shards

    return shards.read_weights(path, read_json(path / "state.json", FORMAT).get("shards", {}))


@contextmanager
def _earlier_checkpoint_in_error(path: Path) -> Iterator[None]:
    """Append the newest earlier checkpoint to the error about a damaged one."""
    try:
        yield
    except OtherVersionError:  # so are the earlier ones
        raise
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
    path.write_text(
        json.dumps({**record, "sha256": _checksum(record)}), encoding="utf-8", newline="\n"
    )


class OtherVersionError(ValueError):
    """A file of another version of regard, in a format that this one does not read."""


def read_json(
    path: Path, version: int, *older: int, instead: str = "train a new run"
) -> dict[str, Any]:
    """Read what `write_json` wrote, in this version or an older one.

    Args:
        instead: what to do if another version wrote it and is not at hand

    Raises:
        FileNotFoundError: if the file does not exist
        OtherVersionError: if its "format" is not one of these versions
        ValueError: if it is damaged
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        checksum, written = record.pop("sha256", None), record["format"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: not JSON of a run") from error
    if written not in (version, *older):
        raise OtherVersionError(
            f"{path} was written by another version of regard (format {written}, this one reads "
            f"{version}): use that version, or {instead}"
        )
    if checksum != _checksum(record):
        raise ValueError(f"{path} is damaged: its checksum does not match its content")
    return record


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()
