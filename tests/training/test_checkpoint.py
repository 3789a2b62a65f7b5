"""What is on the disk is whole, whatever happened while it was written."""

import fcntl
import json
import os
import signal

import pytest

from regard.system.files import atomic_directory, atomic_file, remove_unfinished
from regard.training import Training, train
from regard.training.checkpoint import (
    checkpoints,
    load_checkpoint,
    prune,
    save_checkpoint,
)
from regard.training.optimizer import AdamW
from regard.training.state import Evaluation, State


def saved(run, largest, step=3):
    model = largest().build()
    optimizer = AdamW(model, Training(steps=1))
    state = State(step=step, loss=0.1 + 0.2, evaluations=[Evaluation(2, 1 / 3, {"a": 1 / 3})])
    run.mkdir(exist_ok=True)
    save_checkpoint(run, state, model, optimizer)
    return run / "checkpoints" / f"step-{step}", state, model, optimizer


def test_a_checkpoint_is_three_files_and_no_pickle(tmp_path, largest):
    path, *_ = saved(tmp_path, largest)
    names = {"model.safetensors", "optimizer.safetensors", "state.json"}
    assert {file.name for file in path.iterdir()} == names
    for name in ("model.safetensors", "optimizer.safetensors"):
        content = (path / name).read_bytes()
        header = int.from_bytes(content[:8], "little")
        assert json.loads(content[8 : 8 + header])


def test_a_state_comes_back_to_the_bit(tmp_path, largest):
    path, state, model, optimizer = saved(tmp_path, largest)
    assert load_checkpoint(path, model, optimizer) == state


def test_a_checkpoint_of_a_later_version_is_refused(tmp_path, largest):
    path, _, model, optimizer = saved(tmp_path, largest)
    record = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(record | {"format": 7}))
    with pytest.raises(ValueError, match=r"another version of regard \(format 7, this one"):
        load_checkpoint(path, model, optimizer)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_truncated_file_is_named_and_the_way_back_too(tmp_path, largest, name):
    saved(tmp_path, largest, step=2)
    path, _, model, optimizer = saved(tmp_path, largest)
    (path / name).write_bytes((path / name).read_bytes()[:-7])
    with pytest.raises(
        ValueError, match=f"{name} is damaged.*remove .*step-3 to resume from step-2"
    ):
        load_checkpoint(path, model, optimizer)


def test_pruning_keeps_the_latest_and_the_wanted(tmp_path):
    for step in (2, 3, 5, 7, 11, 101):
        (tmp_path / "checkpoints" / f"step-{step}").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-3 of yesterday").mkdir()
    prune(tmp_path, 2, also=[3])
    assert list(checkpoints(tmp_path)) == [3, 11, 101]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 4


def fail(part):
    """Write half of something and fail."""
    (part / "file" if part.is_dir() else part).write_text("half")
    raise RuntimeError("power")


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("good")
    with pytest.raises(RuntimeError, match="power"), atomic_file(path) as part:
        fail(part)
    assert path.read_text() == "good"
    with pytest.raises(RuntimeError, match="power"), atomic_directory(tmp_path / "folder") as part:
        fail(part)
    assert [left.name for left in tmp_path.iterdir()] == ["file"]


def test_leftovers_are_swept_and_nothing_else(tmp_path):
    (tmp_path / ".unfinished-step-3").mkdir()
    (tmp_path / ".unfinished-step-3" / "model.safetensors").write_text("half")
    (tmp_path / ".unfinished-config.toml").write_text("half")
    (tmp_path / "notes.txt").write_text("mine")
    remove_unfinished(tmp_path)
    assert [left.name for left in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_good_checkpoint(nursery, tmp_path):
    """Files may not grow beyond what the model needs, so that the optimizer's, larger, fails."""
    run, training = tmp_path / "run", {"steps": 6, "save_every": 3, "lr": 0.01}
    assert nursery.train(run, training)["step"] == 6
    whole = (run / "model.safetensors").read_bytes()
    size = (run / "checkpoints/step-6/optimizer.safetensors").stat().st_size
    longer = {**training, "steps": 9}
    message = nursery.train(run, longer, largest_file=size - 100)
    assert message.startswith("OSError: could not save checkpoint")
    assert message.endswith("the last good one is step-6")
    assert "\n" not in message
    assert list(checkpoints(run)) == [5, 6]
    assert not list(run.rglob(".unfinished*"))
    assert (run / "model.safetensors").read_bytes() == whole
    assert nursery.train(run, longer)["step"] == 9


def test_a_kill_in_a_save_leaves_leftovers_that_the_next_start_sweeps(nursery, tmp_path):
    run, training = tmp_path / "run", {"steps": 3, "lr": 0.01}
    number, killed = 5, -signal.SIGKILL
    seen = False
    while killed == -signal.SIGKILL and not seen:
        number += 1
        killed = nursery.train(tmp_path / str(number), training, die_at=number)
        run = tmp_path / str(number)
        seen = bool(list(run.rglob(".unfinished-step*")))
    assert seen
    assert nursery.train(run, training)["step"] == 3
    assert not list(run.rglob(".unfinished*"))


def test_a_second_process_is_kept_out(tmp_path, largest, configure):
    run = tmp_path / "run"
    train(largest(), configure(steps=2), run)
    handle = os.open(run, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError, match="another process is training into"):
        train(largest(), configure(steps=3), run, resume=True)
    os.close(handle)
    assert train(largest(), configure(steps=3), run, resume=True).step == 3
