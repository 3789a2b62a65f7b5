"""When a run is over."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.training.checkpoint import checkpoints
from regard.training.config import Training
from regard.training.state import State
from regard.training.task import Task


def steps(task: Task, state: State, options: Training) -> Iterator[Iterator[Any]]:
    """The batches of each step, from where the state stands until the run is over.

    The state is moved on before a step: what a step saves describes the moment after it.
    """
    while not end(state, options):
        epoch, size = state.epoch, task.steps(state.epoch)
        if size < 1:
            raise ValueError(f"epoch {epoch + 1} has no batches: is there any training data?")
        while state.batch < size and state.epoch == epoch and not end(state, options):
            first, past = state.batch, min(state.batch + options.accumulate, size)
            state.step += 1
            state.epoch, state.batch = (epoch, past) if past < size else (epoch + 1, 0)
            yield (task.batch(epoch, number) for number in range(first, past))


def end(state: State, options: Training) -> str:
    """Which option has ended the run: "steps", "epochs", "minutes" or "patience"; "" if none."""
    if options.steps is not None and state.step >= options.steps:
        return "steps"
    if options.epochs is not None and state.epoch >= options.epochs:
        return "epochs"
    if options.minutes is not None and state.seconds >= options.minutes * 60:
        return "minutes"
    if options.patience is not None and state.stale() >= options.patience:
        return "patience"
    return ""


def last_step(task: Task, options: Training) -> int | None:
    """The last step if neither time nor patience runs out; None if only those end the run.

    Epochs are taken to be as long as the first one.
    """
    ends = [] if options.steps is None else [options.steps]
    if options.epochs is not None:
        ends.append(options.epochs * math.ceil(task.steps(0) / options.accumulate))
    return min(ends, default=None)


def due(state: State, every: int | None) -> bool:
    """Whether a multiple of `every` steps, or by default an epoch, is done."""
    return state.batch == 0 if every is None else state.step % every == 0


def diverged(run: Path, state: State, loss: float, norm: float) -> str:
    """What to say when the loss or the gradient is not finite."""
    last = max(checkpoints(run), default=None)
    kept = f"the last good checkpoint is step-{last}" if last else "there is no checkpoint yet"
    what = f"the loss became {loss}" if not math.isfinite(loss) else f"the gradient became {norm}"
    return (
        f"{what} at step {state.step}, in epoch {state.epochs_begun()}; {kept} in {run}; lower "
        "training.lr, raise training.warmup or set training.clip"
    )
