"""When a run evaluates and when it ends."""

import math
from collections.abc import Iterator
from typing import Any

from regard.training.config import Training
from regard.training.state import State
from regard.training.task import Task


def steps(task: Task, state: State, options: Training) -> Iterator[Iterator[Any]]:
    """The batches of each step, from the position of the state to the end of the run.

    The state is advanced before a step is yielded: what the step saves describes the moment after.
    """
    while not end_reason(state, options):
        epoch, size = state.epoch, task.steps(state.epoch)
        if size < 1:
            raise ValueError(f"epoch {epoch + 1} has no batches: is there any training data?")
        if state.batch >= size:  # the data has shrunk since
            state.epoch, state.batch = epoch + 1, 0
        while state.epoch == epoch and not end_reason(state, options):
            first, past = state.batch, min(state.batch + options.accumulate, size)
            state.step += 1
            state.epoch, state.batch = (epoch, past) if past < size else (epoch + 1, 0)
            yield (task.batch(epoch, number) for number in range(first, past))


def end_reason(state: State, options: Training) -> str:
    """The option that ended the run: "steps", "epochs", "minutes" or "patience"; "" if none."""
    if options.steps is not None and state.step >= options.steps:
        return "steps"
    if options.epochs is not None and state.epoch >= options.epochs:
        return "epochs"
    if options.minutes is not None and state.seconds >= options.minutes * 60:
        return "minutes"
    if options.patience is not None and state.evaluations_since_best() >= options.patience:
        return "patience"
    return ""


def evaluation_due(state: State, options: Training) -> bool:
    """Whether the model is to be evaluated after this step."""
    if state.step == 0 or state.evaluated:
        return False
    every = options.evaluate_every
    due = state.batch == 0 if every is None else state.step % every == 0
    return due or bool(end_reason(state, options))


def last_step(task: Task, options: Training) -> int | None:
    """The last step if neither time nor patience ends the run; None if only those do.

    All epochs are assumed to be as long as the first one.
    """
    ends = [] if options.steps is None else [options.steps]
    if options.epochs is not None:
        ends.append(options.epochs * math.ceil(task.steps(0) / options.accumulate))
    return min(ends, default=None)
