"""Several processes train what one trains, share the work, and survive what happens to them."""

import runpy
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from regard.training.checkpoint import checkpoints
from regard.training.metrics import read_metrics
from regard.training.weights import read_tensors

Crew = runpy.run_path(str(Path(__file__).with_name("crew.py")))["Crew"]
SAME = 1e-5  # of weights, after sums in another order
# Where a gradient is 0 but for rounding, as that of a bias of keys, Adam divides noise by noise:
# with a larger ε it stays small.
TRAINING = {"lr": 0.003, "eps": 1e-3, "threads": 1, "log_every": 1, "device": "cpu"}
MODEL = {"kind": "transformer", "dim": 12, "heads": 2, "hidden": 16, "layers": 2, "dropout": 0.0}


@pytest.fixture(scope="module")
def crew():
    found = Crew()
    yield found
    found.close()


def copying(steps=3, *, shard=False, timeout=60.0, **training):
    """Copy sequences with a Transformer; batches of different numbers of rows."""
    data = {"name": "copy", "count": 100, "valid_count": 23, "tokens": 200, "metric": "loss"}
    return {
        "task": "translate",
        "data": data,
        "model": MODEL,
        "training": {**TRAINING, "steps": steps, **training},
        "distributed": {"shard": shard, "timeout": timeout},
    }


def largest(steps=9, *, timeout=60.0, **training):
    """The task of conftest: noise of three generators, dropout, tied weights."""
    return {
        "task": "largest",
        "training": {**TRAINING, "steps": steps, "save_every": 2, **training},
        "distributed": {"timeout": timeout},
    }


def furthest(one, other):
    """The largest difference of two models' weights."""
    first, second = (read_tensors(run / "model.safetensors") for run in (one, other))
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def losses(run):
    return [line["loss"] for line in read_metrics(run / "metrics.jsonl") if "loss" in line]


@pytest.fixture(scope="module")
def alone(crew, tmp_path_factory):
    """The run of one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    (outcome,) = crew.train(run, copying(), 1)
    assert outcome["reason"] == "steps"
    return run, outcome


@pytest.mark.parametrize(("world", "shard"), [(2, False), (3, False), (2, True)])
def test_the_number_of_processes_does_not_change_the_training(crew, alone, tmp_path, world, shard):
    run, expected = alone
    found = crew.train(tmp_path / "run", copying(shard=shard), world)
    assert furthest(tmp_path / "run", run) < SAME
    torch.testing.assert_close(losses(tmp_path / "run"), losses(run), rtol=SAME, atol=SAME)
    for outcome in found:  # the metrics are of all validation pairs, in every process
        torch.testing.assert_close(outcome["metrics"], expected["metrics"], rtol=1e-4, atol=0.0)


def test_a_sharded_training_is_the_unsharded_one_to_the_bit(crew, tmp_path):
    """Also where a shard ends in the middle of a vector of the processor."""
    for shard in (False, True):
        crew.train(tmp_path / str(shard), copying(steps=9, shard=shard, eps=1e-9), 2)
    assert losses(tmp_path / "True") == losses(tmp_path / "False")
    assert furthest(tmp_path / "True", tmp_path / "False") == 0


@pytest.mark.slow
def test_a_whole_run_learns_the_same(crew, tmp_path):
    values = copying(steps=None, epochs=6, accumulate=2, lr=0.03)
    del values["training"]["steps"]
    (one,) = crew.train(tmp_path / "one", values, 1)
    two, _ = crew.train(tmp_path / "two", values, 2)
    assert one["step"] == two["step"] > 20
    assert losses(tmp_path / "one")[-1] < 0.95 * losses(tmp_path / "one")[0]
    torch.testing.assert_close(
        losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-3, atol=0.0
    )


@pytest.mark.slow
def test_a_sharded_checkpoint_is_resumed_by_any_number_of_processes(crew, alone, tmp_path):
    run = tmp_path / "run"
    crew.train(run, copying(1, shard=True), 2)
    (first,) = checkpoints(run).values()
    assert sorted(path.name[:11] for path in first.glob("*.safetensors")) == [
        "shard-00001",
        "shard-00002",
    ]
    crew.train(run, copying(2, shard=True), 3)
    crew.train(run, copying(3), 1)  # not sharded any more
    assert furthest(run, alone[0]) < SAME
    crew.train(run, copying(4, shard=True), 2)  # and sharded again
    assert max(checkpoints(run)) == 4


@pytest.mark.slow
def test_a_damaged_shard_is_reported(crew, tmp_path):
    crew.train(tmp_path / "run", copying(1, shard=True), 2)
    (file,) = tmp_path.glob("run/checkpoints/*/shard-00002*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for answer in crew.train(tmp_path / "run", copying(2, shard=True), 2):
        assert "is damaged: the checksums of its files do not match" in answer


@pytest.fixture(scope="module")
def undisturbed(crew, tmp_path_factory):
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    crew.train(run, largest(), 3)
    return (run / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_killed_worker_is_named_and_the_resumed_run_ends_with_the_same_bytes(
    crew, undisturbed, tmp_path
):
    run = tmp_path / "run"
    first, killed, last = crew.train(run, largest(), 3, kill=[1, 6])
    assert killed == -9
    assert "rank 0: rank 1 ended or did not answer" in first
    assert "torchrun --max-restarts 3 would resume" in first
    assert "ended or did not answer" in last
    assert max(checkpoints(run)) == 5
    assert crew.train(run, largest(), 3)[0]["reason"] == "steps"
    assert (run / "model.safetensors").read_bytes() == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("operation", [17, 33])
def test_rank_0_killed_at_a_file_operation_loses_nothing(crew, undisturbed, tmp_path, operation):
    run = tmp_path / "run"
    killed, *others = crew.train(run, largest(), 3, die_at=operation)
    assert killed == -9
    assert all("rank 0 ended" in answer for answer in others)
    crew.train(run, largest(), 3)
    assert (run / "model.safetensors").read_bytes() == undisturbed


def test_a_full_disk_ends_all_processes_and_keeps_the_last_checkpoint(crew, tmp_path):
    run = tmp_path / "run"
    crew.train(run, largest(2), 2)
    first, second = crew.train(run, largest(9), 2, largest_file=2000)
    assert first.startswith("OSError: could not save checkpoint")
    assert "the last good one is step-2" in first
    assert second == "SystemExit: 1"  # the first one reports it
    assert list(checkpoints(run)) == [2]


@pytest.mark.slow
def test_a_worker_that_hangs_is_named(crew, tmp_path):
    waiting, _ = crew.train(tmp_path / "run", largest(timeout=2.0), 2, stop=[1, 4])
    assert "rank 0: rank 1 ended or did not answer for 2 s" in waiting
    assert max(checkpoints(tmp_path / "run")) == 2


def test_a_process_that_never_joins_is_one_sentence(crew, tmp_path):
    (answer,) = crew.train(tmp_path / "run", largest(timeout=1.0), 2, absent=[1])
    assert "rank 0 waited 1 s for 2 processes to join" in answer
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "world", "faults", "message"),
    [
        (largest(), 2, {"versions": 1}, "rank 1 has versions"),
        (largest(), 14, {}, "a batch has 13 rows, fewer than 14 processes"),
        (
            {"task": "memory", "training": {"steps": 1}},
            2,
            {},
            "a batch of MemoryTask cannot be divided: train it with one process",
        ),
        (largest(device="cuda"), 2, {}, "device cuda:0 is not available here; choose cpu"),
    ],
)
def test_what_cannot_work_is_reported_before_anything_is_written(
    crew, tmp_path, values, world, faults, message
):
    first, *_ = crew.train(tmp_path / "run", values, world, **faults)
    assert message in first
    assert not (tmp_path / "run").exists()


def test_the_loss_is_the_mean_over_all_tokens_of_all_processes(crew, alone):
    """The first logged loss, computed here from the formula."""
    from regard.tasks import TASKS
    from regard.training import read_config
    from regard.training.random_state import seed_all

    config = read_config(copying())
    task = TASKS["translate"].from_config(config)
    seed_all(config.seed)
    model = task.build().double()
    batch = task.batch(0, 0)
    logits = model.output(model(batch.source, batch.source_lengths, batch.target[:, :-1]))
    wanted = batch.target[:, 1:]
    losses_ = F.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=0, reduction="mean")
    assert losses(alone[0])[0] == pytest.approx(losses_.item(), rel=1e-6)
