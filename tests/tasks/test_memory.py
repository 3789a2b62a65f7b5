from pathlib import Path

import pytest
import torch

from regard.data.sequences import BIT_TASKS, draw_bits
from regard.models.turing import MemoryOutput
from regard.recipes import load_recipe
from regard.tasks import load
from regard.tasks.memory import Data, MemoryTask, Model
from regard.training import read_config, read_settings, train


@pytest.mark.parametrize("kind", ["ntm", "lstm"])
def test_it_learns_to_copy_and_the_run_opens_again(tmp_path: Path, kind: str) -> None:
    small = ["data.shortest=1", "data.longest=2", "data.batches=75", "data.rows=32"]
    sizes = ["model.slots=7", "model.width=11", "model.hidden=64", "model.layers=1"]
    config = read_config(
        load_recipe("memory"),
        [*small, *sizes, f"model.kind={kind}", "training.epochs=4", "training.lr=1e-2"],
    )
    task = MemoryTask.from_config(config)
    metrics = train(task, config, tmp_path / "run").metrics
    assert metrics["bit_error"] < 0.15  # a half by chance
    predictor = load(tmp_path / "run")
    assert predictor.bit_error(1) == pytest.approx(metrics["bit_error"], abs=0.15)
    (found,) = predictor.predict([torch.zeros(5, 9)])
    assert found.bits.shape == (5, 8)
    assert (found.read_weights is None) == (kind == "lstm")
    trace = predictor.trace(3)
    assert [call.shape for call in trace.calls] == ([(1, 7, 7)] * 2 if kind == "ntm" else [])
    trace.figure(tmp_path / "tape.png")
    assert (tmp_path / "tape.png").stat().st_size > 3000
    predictor.trace(torch.zeros(5, 9)).figure(tmp_path / "zeros.svg")
    assert (tmp_path / "zeros.svg").is_file()


@pytest.mark.parametrize("name", BIT_TASKS)
def test_each_kind_of_bits_has_batches_a_loss_and_metrics(name: str) -> None:
    task = MemoryTask(Data(name=name, shortest=2, longest=3, held_out=5), Model(slots=7))
    batch = task.batch(1, 3)
    assert torch.equal(batch.inputs, task.batch(1, 3).inputs)
    model = task.build()
    loss = task.loss(model, batch)
    assert loss.count == 16
    assert 0.5 < loss.total.item() / 16 < 1.0  # about log 2, as nothing was learned
    metrics = task.evaluate(model.eval())
    assert 0.2 < metrics["bit_error"] < 0.8
    assert set(metrics) == {"loss", "bit_error", "bit_error_longer"}


def test_sizes_are_drawn_from_shortest_to_longest() -> None:
    task = MemoryTask(Data(shortest=2, longest=5), Model())
    sizes = {int(task.batch(epoch, 0).due.sum()) for epoch in range(60)}
    assert sizes == {2, 3, 4, 5}


def test_bad_tables_are_clear_errors() -> None:
    with pytest.raises(ValueError, match="longest=3 is below shortest=5"):
        read_settings(Data, {"shortest": 5, "longest": 3}, "data")
    with pytest.raises(ValueError, match="recall needs shortest=2"):
        read_settings(Data, {"name": "recall"}, "data")
    with pytest.raises(ValueError, match=r"unknown key model\.slot; did you mean 'slots'"):
        read_settings(Model, {"slot": 5}, "model")


def test_repeat_copy_starts_with_one_copy_and_grows_to_ten() -> None:
    task = MemoryTask(
        Data(name="repeat_copy", shortest=1, longest=1, rows=1, batches=100, single=2), Model()
    )

    def most(epoch: int) -> int:  # of one vector and the end
        return max(int(task.batch(epoch, step).due.sum()) - 1 for step in range(100))

    assert [most(0), most(1)] == [1, 1]
    assert 1 < most(2) < 10
    assert most(4) == 10


def test_repeat_copy_is_tested_with_every_number_of_copies() -> None:
    class Guess(torch.nn.Module):
        """Answers all steps with zeros, and notes how many there were."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.steps: list[int] = []

        def forward(self, inputs: torch.Tensor) -> MemoryOutput:
            self.steps.append(inputs.shape[1])
            return MemoryOutput(inputs.new_full((*inputs.shape[:2], 9), -1.0))

    data = Data(name="repeat_copy", shortest=3, longest=3, longer=5, held_out=20)
    task, model = MemoryTask(data, Model()), Guess()
    metrics = task.evaluate(model)
    assert model.steps == [size + 1 + size * n + 1 for size in (3, 5) for n in range(1, 11)]
    ones = [draw_bits("repeat_copy", 200, 3, seed=n, repeats=n) for n in range(1, 11)]
    share = sum(float(bits.targets.sum()) for bits in ones)
    share /= sum(bits.targets[:, bits.due].numel() for bits in ones)  # wrong are the ones
    assert metrics["bit_error"] == pytest.approx(share, abs=0.02)
