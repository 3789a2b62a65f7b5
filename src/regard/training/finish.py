"""The model of a run: the best checkpoint so far, and at the end perhaps an average of several."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.training.checkpoint import checkpoints, prune, read_weights
from regard.training.config import Training
from regard.training.device import device_of
from regard.training.metrics import Metrics, read_metrics
from regard.training.processes import on_first
from regard.training.random_state import preserved_random_state
from regard.training.schedule import end_reason
from regard.training.state import Evaluation, State
from regard.training.task import Task
from regard.training.weights import (
    is_sharded,
    put_weights,
    read_steps,
    read_tensors,
    whole_weights,
    write_model,
)

MODEL = "model.safetensors"


class Outcome(NamedTuple):
    """How a run ended, or was interrupted."""

    reason: str  # the limit that was reached, "steps", "epochs", ...; or "interrupted"
    step: int
    seconds: float  # of all sessions
    metrics: dict[str, float]  # of the model that was written; empty if none was
    already: bool = False  # whether it had ended before it was resumed


def outcome(state: State, reason: str, metrics: dict[str, float] | None = None) -> Outcome:
    """The outcome at a state, by default with the metrics of its best checkpoint."""
    best = state.best()
    if metrics is None:
        metrics = {} if best is None else best.metrics
    return Outcome(reason, state.step, state.seconds, metrics)


def evaluate(task: Task, model: nn.Module, step: int) -> Evaluation:
    """Evaluate without any effect on the training: the random state is preserved.

    A sharded model is evaluated as a whole copy in every process.

    Raises:
        ValueError: if the task's metric is not among its metrics
    """
    with torch.no_grad(), preserved_random_state():
        evaluated = _whole(task, model).eval()
        metrics = {name: float(value) for name, value in task.evaluate(evaluated).items()}
    model.train()
    if task.metric not in metrics:
        returned = ", ".join(metrics) or "nothing"
        raise ValueError(f"evaluate() of the task must return {task.metric!r}, got {returned}")
    score = metrics[task.metric] if task.larger_is_better else -metrics[task.metric]
    return Evaluation(step, -sys.float_info.max if math.isnan(score) else score, metrics)


def _whole(task: Task, model: nn.Module) -> nn.Module:
    if not is_sharded(model):
        return model
    copy = task.build().to(device_of(model))
    put_weights(copy, whole_weights(model))
    return copy


def publish_best(run: Path, state: State, options: Training) -> None:
    """Write the best weights so far as the run's model, and remove checkpoints not needed."""
    best = state.best()
    if best is not None and best.step == state.step:
        write_model(run / MODEL, average_checkpoints(run, [best.step]), [best.step])
    _prune(run, state, options)


def finish(
    task: Task, model: nn.Module, run: Path, state: State, options: Training, metrics: Metrics
) -> Outcome:
    """Write the run's model: the best checkpoint, or the average of the chosen ones.

    An average of the best ones is taken if it is as good as the best alone; an average of the last
    ones always. The model is left with the weights that were written.
    """
    best = state.best()
    assert best is not None  # the last step is always evaluated
    existing = checkpoints(run)
    chosen = [s for s in state.chosen(options.average, options.average_of) if s in existing]
    tensors, steps, found = _best_weights(run, best.step), [best.step], best.metrics
    if chosen not in ([], [best.step]):
        averaged = average_checkpoints(run, chosen)
        put_weights(model, averaged)
        evaluation = evaluate(task, model, state.step)
        valid = {f"valid/{name}": value for name, value in evaluation.metrics.items()}
        metrics.write(state.step, averaged=chosen, **valid)
        if evaluation.rank >= best.rank or options.average_of == "last":
            tensors, steps, found = averaged, chosen, evaluation.metrics
    put_weights(model, tensors)
    reason = end_reason(state, options)

    def write() -> None:
        write_model(run / MODEL, tensors, steps)
        _prune(run, state, options)  # for a run that was killed before it did
        metrics.write(state.step, finished=reason, **{f"model/{k}": v for k, v in found.items()})

    on_first(write)
    return outcome(state, reason, found)


def finished(run: Path, state: State, options: Training) -> Outcome | None:
    """The outcome of a run that has ended, unless its options now ask for more."""
    path, reason = run / "metrics.jsonl", end_reason(state, options)
    lines = read_metrics(path) if path.exists() else []
    if not reason or not lines or "finished" not in lines[-1] or not read_steps(run / MODEL):
        return None
    metrics = {k.removeprefix("model/"): v for k, v in lines[-1].items() if k.startswith("model/")}
    return outcome(state, reason, metrics)._replace(already=True)


def average_checkpoints(run: Path, steps: Sequence[int]) -> dict[str, Tensor]:
    """The mean of the weights of checkpoints, summed in float64 in the given order.

    Vaswani et al. 2017, section 6.1, average the last ones. Integers are taken from the last one.
    """
    paths = checkpoints(run)
    last = read_weights(paths[steps[-1]])
    if len(steps) == 1:
        return last
    floats = [name for name, tensor in last.items() if tensor.is_floating_point()]
    sums = {name: torch.zeros_like(last[name], dtype=torch.float64) for name in floats}
    for step in steps:
        tensors = read_weights(paths[step])
        for name in floats:
            sums[name] += tensors[name]
    return last | {name: (sums[name] / len(steps)).to(last[name].dtype) for name in floats}


def _best_weights(run: Path, step: int) -> dict[str, Tensor]:
    """The weights of the best step, from its checkpoint or else from the run's model."""
    try:
        return read_weights(run / "checkpoints" / f"step-{step}")
    except (FileNotFoundError, ValueError) as error:
        if read_steps(run / MODEL) == [step]:
            return read_tensors(run / MODEL)
        raise ValueError(
            f"the weights of step {step}, the best so far, are lost: {error}, and {run / MODEL} "
            "does not hold them; restore one of the two from a backup, or train a new run"
        ) from error


def _prune(run: Path, state: State, options: Training) -> None:
    best = state.best()
    chosen = state.chosen(options.average, options.average_of)
    prune(run, options.keep, chosen if best is None else [*chosen, best.step])
