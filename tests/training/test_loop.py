import json
import signal

import pytest
import torch

from regard.training import Silent, read_config, train
from regard.training.checkpoint import checkpoints
from regard.training.metrics import read_metrics
from regard.training.weights import read_tensors, weights


def test_a_run_directory_holds_what_it_should(tmp_path, largest, configure):
    run = tmp_path / "runs" / "largest"
    outcome = train(largest(), configure(epochs=3, keep=2), run)
    assert (outcome.reason, outcome.step) == ("epochs", 5 + 6 + 5)
    names = {path.name for path in run.iterdir()}
    assert names >= {"config.toml", "tokenizer.json", "model.safetensors", "metrics.jsonl"}
    assert list(checkpoints(run))[-2:] == [11, 16]
    assert read_config(run / "config.toml").training.threads == torch.get_num_threads()
    assert set(read_tensors(run / "model.safetensors")) == set(weights(largest().build()))


def test_it_learns(tmp_path, largest, configure):
    config = configure(epochs=20, lr=0.03, log_every=10)
    outcome = train(largest(batches=31), config, tmp_path / "run")
    assert outcome.metrics["accuracy"] > 0.75
    lines = [x for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in x]
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]


def test_accumulated_batches_are_one_large_one(tmp_path, configure, largest):
    class Halves(largest):
        """Each batch of Whole in two parts, of different sizes; nothing random."""

        parts = 2

        def build(self):
            torch.manual_seed(5)
            return torch.nn.Linear(7, 7)

        def steps(self, epoch):
            return 3 * self.parts

        def batch(self, epoch, step):
            rows = super().batch(epoch, step // self.parts)
            return rows if self.parts == 1 else (rows[:4], rows[4:])[step % 2]

        def loss(self, model, batch):
            total = (model(batch) - batch.flip(1)).pow(2).sum()
            return super().loss(model, batch)._replace(total=total)

    class Whole(Halves):
        parts = 1

    train(Whole(), configure(epochs=2, lr=0.1), tmp_path / "whole")
    train(Halves(), configure(epochs=2, lr=0.1, accumulate=2), tmp_path / "halves")
    whole, halves = (read_tensors(tmp_path / n / "model.safetensors") for n in ("whole", "halves"))
    assert list(checkpoints(tmp_path / "halves")) == list(checkpoints(tmp_path / "whole")) == [3, 6]
    for name, tensor in whole.items():
        torch.testing.assert_close(halves[name], tensor, atol=1e-5, rtol=1e-5)


class Scripted:
    """Evaluations that go as planned."""

    def __init__(self, task, scores):
        self.task, self.scores, self.calls = task, scores, 0

    def __getattr__(self, name):
        return getattr(self.task, name)

    def evaluate(self, model):
        self.calls += 1
        return {"accuracy": self.scores[self.calls - 1]}


def test_the_best_evaluation_makes_the_model_and_patience_ends_the_run(
    tmp_path, largest, configure
):
    task = Scripted(largest(), [0.1, 0.5, 0.3, 0.5, 0.2, 0.9])
    config = configure(steps=99, evaluate_every=2, patience=3, keep=1)
    outcome = train(task, config, tmp_path / "run")
    assert (outcome.reason, outcome.step) == ("patience", 10)
    assert outcome.metrics == {"accuracy": 0.5}
    assert list(checkpoints(tmp_path / "run")) == [4, 10]
    best = tmp_path / "run" / "checkpoints" / "step-4" / "model.safetensors"
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == best.read_bytes()


def test_the_loss_decides_while_the_metric_is_zero(tmp_path, largest, configure):
    task = Scripted(largest(), [0.0] * 5)
    losses = iter([0.9, 0.5, 0.3, 0.4, 0.6])
    task.evaluate = lambda model: {"accuracy": 0.0, "loss": next(losses)}
    outcome = train(task, configure(steps=99, evaluate_every=2, patience=2), tmp_path / "run")
    assert (outcome.reason, outcome.step) == ("patience", 10)  # not before the loss rises
    assert outcome.metrics == {"accuracy": 0.0, "loss": 0.3}
    task.evaluate = lambda model: {"accuracy": 0.1, "loss": 0.7}
    config = configure(steps=12, evaluate_every=2)
    outcome = train(task, config, tmp_path / "run", resume=True)
    assert outcome.metrics == {"accuracy": 0.1, "loss": 0.7}  # any success is better


def test_smaller_may_be_better(tmp_path, largest, configure):
    task = Scripted(largest(), [3.0, float("nan"), 1.0, 2.0])
    task.larger_is_better = False
    outcome = train(task, configure(steps=8, evaluate_every=2), tmp_path / "run")
    assert outcome.metrics == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("which", "scores", "steps"),
    [
        ("best", [0.4, 0.1, 0.5, 0.2, 0.6], [2, 6]),  # and the average
        ("best", [0.4, 0.1, 0.5, 0.2, 0.3], [6]),  # the average is worse than the best
        ("last", [0.4, 0.1, 0.5, 0.2, 0.3], [6, 8]),
    ],
)
def test_checkpoints_are_averaged(tmp_path, largest, configure, which, scores, steps):
    config = configure(steps=8, evaluate_every=2, average=2, average_of=which, keep=1)
    outcome = train(Scripted(largest(), scores), config, tmp_path / "run")
    found = read_tensors(tmp_path / "run" / "model.safetensors")
    folder = tmp_path / "run" / "checkpoints"
    parts = [read_tensors(folder / f"step-{step}" / "model.safetensors") for step in steps]
    for name, tensor in found.items():
        mean = sum(part[name].double() for part in parts) / len(parts)
        torch.testing.assert_close(tensor, mean.float(), rtol=0, atol=1e-7)
    assert outcome.metrics["accuracy"] == (0.5 if steps == [6] else scores[-1])


def test_a_metric_that_is_not_given_is_named(tmp_path, largest, configure):
    task = largest()
    task.metric = "bleu"
    with pytest.raises(ValueError, match="must return 'bleu', got accuracy"):
        train(task, configure(steps=2), tmp_path / "run")


def test_an_epoch_without_batches_is_an_error(tmp_path, largest, configure):
    with pytest.raises(ValueError, match="no batches"):
        train(largest(batches=0), configure(steps=2), tmp_path / "run")


def test_how_often_one_evaluates_does_not_change_the_training(tmp_path, largest, configure):
    for every in (2, 3):
        train(largest(), configure(steps=6, evaluate_every=every), tmp_path / str(every))
    first, second = (
        tmp_path / str(every) / "checkpoints" / "step-6" / "model.safetensors" for every in (2, 3)
    )
    assert first.read_bytes() == second.read_bytes()


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_last_good_checkpoint(
    tmp_path, largest, configure
):
    run = tmp_path / "run"
    sentence = r"the loss became nan at step 8, in epoch 2; the last good checkpoint is step-6"
    with pytest.raises(FloatingPointError, match=sentence):
        train(largest(poison=[1, 2]), configure(epochs=3, save_every=3), run)
    assert list(checkpoints(run))[-1] == 6
    for tensor in read_tensors(run / "checkpoints" / "step-6" / "model.safetensors").values():
        assert tensor.isfinite().all()
    outcome = train(largest(), configure(epochs=3, save_every=3), run, resume=True)
    assert outcome.reason == "epochs"


def test_time_ends_a_run_after_a_whole_step(tmp_path, largest, configure):
    outcome = train(largest(), configure(minutes=1e-6), tmp_path / "run")
    assert (outcome.reason, outcome.step) == ("minutes", 1)
    assert (tmp_path / "run" / "model.safetensors").exists()


class Signal(Silent):
    """Sends a signal to this process at some step."""

    def __init__(self, number, step):
        self.number, self.at = number, step

    def step(self, state, *values):
        if state.step == self.at:
            signal.raise_signal(self.number)


class Displayed(Silent):
    def __init__(self):
        self.steps = []

    def step(self, state, *values):
        self.steps.append(state.step)


def test_the_first_step_which_compiles_tells_no_pace(tmp_path, largest, configure):
    displayed = Displayed()
    train(largest(), configure(steps=3), tmp_path / "run", progress=displayed)
    train(largest(), configure(steps=6), tmp_path / "run", progress=displayed, resume=True)
    assert displayed.steps == [2, 3, 5, 6]


@pytest.fixture
def hangup():
    """SIGHUP as in a terminal; it is ignored where the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_the_rest_is_as_if_it_had_not_come(tmp_path, largest, configure, number):
    config = configure(epochs=3, lr=0.01)
    before = signal.getsignal(signal.SIGINT)
    train(largest(), config, tmp_path / "whole")
    outcome = train(largest(), config, tmp_path / "run", progress=Signal(number, 7))
    assert (outcome.reason, outcome.step) == ("interrupted", 7)
    assert list(checkpoints(tmp_path / "run"))[-1] == 7
    assert signal.getsignal(signal.SIGINT) is before
    assert train(largest(), config, tmp_path / "run", resume=True).reason == "epochs"
    whole, parts = (tmp_path / name / "model.safetensors" for name in ("whole", "run"))
    assert whole.read_bytes() == parts.read_bytes()


@pytest.mark.usefixtures("hangup")
def test_under_nohup_training_goes_on_when_the_terminal_is_closed(tmp_path, largest, configure):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    outcome = train(
        largest(), configure(steps=9), tmp_path / "run", progress=Signal(signal.SIGHUP, 7)
    )
    assert (outcome.reason, outcome.step) == ("steps", 9)


def test_a_finished_run_stays_as_it_is_unless_more_is_asked_for(tmp_path, largest, configure):
    run = tmp_path / "run"
    first = train(largest(), configure(steps=4), run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    again = train(largest(), configure(steps=4), run, resume=True)
    assert again == first._replace(already=True)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")} == before
    longer = train(largest(), configure(steps=7), run, resume=True)
    assert (longer.reason, longer.step) == ("steps", 7)
    assert read_config(run / "config.toml").training.steps == 7
    ends = [line for line in read_metrics(run / "metrics.jsonl") if "finished" in line]
    assert [line["step"] for line in ends] == [7]


def test_an_extended_run_is_the_longer_run(tmp_path, largest, configure):
    config = {"evaluate_every": 2, "lr": 0.01, "schedule": "inverse_sqrt", "warmup": 3}
    train(largest(), configure(steps=4, **config), tmp_path / "run")
    train(largest(), configure(steps=8, **config), tmp_path / "run", resume=True)
    train(largest(), configure(steps=8, **config), tmp_path / "whole")
    one, other = (tmp_path / name / "model.safetensors" for name in ("run", "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_an_existing_run_is_not_overwritten(tmp_path, largest, configure):
    train(largest(), configure(steps=2), tmp_path / "run")
    with pytest.raises(FileExistsError, match="holds a run: resume it with --resume"):
        train(largest(), configure(steps=2), tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(FileExistsError, match="is not empty"):
        train(largest(), configure(steps=2), tmp_path / "mine")


def test_there_must_be_a_run_to_resume(tmp_path, largest, configure):
    with pytest.raises(FileNotFoundError, match=r"none is not a run directory"):
        train(largest(), configure(steps=2), tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


def test_a_resumed_run_keeps_its_data_model_and_seed(tmp_path, largest, configure):
    run = tmp_path / "run"
    train(largest(), configure(steps=2), run)
    other = configure(steps=3).model_copy(update={"seed": 7})
    with pytest.raises(ValueError, match="started with seed = 1; a resumed run cannot change it"):
        train(largest(), other, run, resume=True)
    with pytest.raises(ValueError, match=r"started with data.batches = its default"):
        train(largest(), configure(steps=3, data={"batches": 7}), run, resume=True)


def test_a_place_that_cannot_be_written_is_an_error_of_the_system(tmp_path, largest, configure):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        train(largest(), configure(steps=2), tmp_path / "file" / "run")


def test_metrics_have_the_mean_loss_of_every_stretch(tmp_path, largest, configure):
    run = tmp_path / "run"
    train(largest(), configure(steps=7, log_every=1, evaluate_every=3), run)
    every = [line for line in read_metrics(run / "metrics.jsonl") if "loss" in line]
    train(largest(), configure(steps=7, log_every=3, evaluate_every=3), tmp_path / "other")
    lines = read_metrics(tmp_path / "other" / "metrics.jsonl")
    third = next(line for line in lines if "loss" in line)
    sizes = [13, 14, 15]
    mean = sum(line["loss"] * n for line, n in zip(every, sizes, strict=False)) / sum(sizes)
    assert third["loss"] == pytest.approx(mean)
    assert third["rows"] == sum(sizes)
    assert [line["epoch"] for line in every] == [1, 1, 1, 1, 1, 2, 2]
    assert [line["step"] for line in lines if "valid/accuracy" in line] == [3, 6, 7]
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["finished"] == "steps"
