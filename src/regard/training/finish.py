"""The model of a run: the best checkpoint so far, and in the end perhaps an average of several."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from regard.training.average import average_checkpoints
from regard.training.checkpoint import checkpoints, prune
from regard.training.config import Training
from regard.training.ending import end
from regard.training.evaluate import evaluate
from regard.training.metrics import Metrics, read_metrics
from regard.training.state import State
from regard.training.task import Task
from regard.training.weights import put_weights, write_model


class Outcome(NamedTuple):
    """How a run ended, or was interrupted."""

    reason: str  # "steps", "epochs", "minutes" or "patience" came to their end; "interrupted"
    step: int
    seconds: float  # of all its parts
    figures: dict[str, float]  # of the model that was written; empty if none was
    already: bool = False  # whether it had ended before it was to be resumed


def outcome(state: State, reason: str, figures: dict[str, float] | None = None) -> Outcome:
    """What to say of a state; by default, with the figures of its best checkpoint."""
    best = state.best()
    if figures is None:
        figures = {} if best is None else best.figures
    return Outcome(reason, state.step, state.seconds, figures)


def publish_best(run: Path, state: State, options: Training) -> None:
    """Write the best weights so far as the run's model, and remove checkpoints of no more use."""
    best = state.best()
    if best is not None and best.step == state.step:
        write_model(run / "model.safetensors", _weights(run, [best.step]))
    _prune(run, state, options)


def finish(
    task: Task, model: nn.Module, run: Path, state: State, options: Training, metrics: Metrics
) -> Outcome:
    """Write the run's model: the best checkpoint, or the average of the chosen ones.

    An average of the best ones has to be as good as the best alone; one of the last ones is taken
    as it is. The model is left with the weights that were written.
    """
    best = state.best()
    assert best is not None  # the last step is always evaluated
    there = checkpoints(run)
    chosen = [s for s in state.chosen(options.average, options.average_of) if s in there]
    tensors, figures = _weights(run, [best.step]), best.figures
    if chosen != [best.step]:
        averaged = _weights(run, chosen)
        put_weights(model, averaged)
        found = evaluate(task, model, state.step)
        valid = {f"valid/{name}": value for name, value in found.figures.items()}
        metrics.write(state.step, averaged=chosen, **valid)
        if found.score >= best.score or options.average_of == "last":
            tensors, figures = averaged, found.figures
    put_weights(model, tensors)
    write_model(run / "model.safetensors", tensors)
    _prune(run, state, options)  # for a run that was killed before it did
    reason = end(state, options)
    metrics.write(state.step, finished=reason, **{f"model/{k}": v for k, v in figures.items()})
    return outcome(state, reason, figures)


def finished(run: Path, state: State, options: Training) -> Outcome | None:
    """How the run ended, if it did and its options do not ask for more."""
    path, reason = run / "metrics.jsonl", end(state, options)
    lines: list[dict[str, Any]] = read_metrics(path) if path.exists() else []
    if not reason or not lines or "finished" not in lines[-1]:
        return None
    figures = {k.removeprefix("model/"): v for k, v in lines[-1].items() if k.startswith("model/")}
    return outcome(state, reason, figures)._replace(already=True)


def _prune(run: Path, state: State, options: Training) -> None:
    best = state.best()
    wanted = state.chosen(options.average, options.average_of)
    prune(run, options.keep, wanted if best is None else [*wanted, best.step])


def _weights(run: Path, steps: list[int]) -> dict:
    paths = checkpoints(run)
    return average_checkpoints([paths[step] for step in steps])
