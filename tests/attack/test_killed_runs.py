"""A run that was killed ends as if it had not been: compared byte by byte."""

import json
import os
import signal
import time

import pytest

from regard.training.checkpoint import checkpoints
from regard.training.metrics import read_metrics

TRAINING = {
    "epochs": 5,
    "lr": 0.01,
    "schedule": "plateau",
    "lower_after": 1,
    "accumulate": 2,
    "evaluate_every": 4,
    "save_every": 3,
    "log_every": 5,
    "average": 2,
    "keep": 1,
}
CLOCK = ("seconds", "rows_per_second")  # what differs between two runs of the same


def result(run):
    """All that must not depend on kills."""
    last = max(checkpoints(run).values(), key=lambda path: int(path.name.removeprefix("step-")))
    record = json.loads((last / "state.json").read_text())
    del record["state"]["seconds"], record["sha256"]
    lines = read_metrics(run / "metrics.jsonl")
    files = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    return {
        "model": (run / "model.safetensors").read_bytes(),
        "last model": (last / "model.safetensors").read_bytes(),
        "optimizer": (last / "optimizer.safetensors").read_bytes(),
        "state": record,
        "metrics": [{k: v for k, v in line.items() if k not in CLOCK} for line in lines],
        "files": [file for file in files if not file.startswith("events")],
    }


@pytest.fixture(scope="module")
def undisturbed(nursery, tmp_path_factory):
    """The result of an uninterrupted run, and its duration."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    outcome = nursery.train(run, TRAINING)
    assert outcome["reason"] == "epochs"
    return result(run), outcome["seconds"]


def test_the_same_seed_gives_the_same_run(nursery, undisturbed, tmp_path):
    nursery.train(tmp_path / "run", TRAINING)
    assert result(tmp_path / "run") == undisturbed[0]


def test_another_seed_gives_another(nursery, undisturbed, tmp_path):
    nursery.train(tmp_path / "run", TRAINING, seed=2)
    assert result(tmp_path / "run")["model"] != undisturbed[0]["model"]


@pytest.mark.slow
def test_a_run_killed_at_any_time_ends_with_the_same_bytes(
    nursery, undisturbed, tmp_path, attempts
):
    expected, duration = undisturbed
    for number, rng in enumerate(attempts(8)):
        run = tmp_path / str(number)
        answer = -signal.SIGKILL
        while answer == -signal.SIGKILL:
            pid = nursery.begin(run, TRAINING)
            if rng.random() < 0.8:
                time.sleep(rng.uniform(0, 1.5 * duration))  # its start takes time too
                os.kill(pid, signal.SIGKILL)
            answer = nursery.end()
        assert isinstance(answer, dict), answer
        assert result(run) == expected


def test_a_run_killed_at_any_file_operation_ends_with_the_same_bytes(
    nursery, undisturbed, tmp_path, attempts
):
    for attempt, rng in enumerate(attempts(7)):
        run = tmp_path / str(attempt)
        number = rng.randrange(1, 200)
        killed = nursery.train(run, TRAINING, die_at=number)
        answer = nursery.train(run, TRAINING) if killed == -signal.SIGKILL else killed
        assert isinstance(answer, dict), answer
        assert result(run) == undisturbed[0], f"killed at file operation {number}"


def test_a_run_killed_while_it_evaluates_has_lost_nothing(nursery, undisturbed, tmp_path):
    run = tmp_path / "run"
    assert nursery.train(run, TRAINING, die_in_evaluation=4) == -signal.SIGKILL
    assert max(checkpoints(run)) == 4
    assert isinstance(nursery.train(run, TRAINING), dict)
    assert result(run) == undisturbed[0]
