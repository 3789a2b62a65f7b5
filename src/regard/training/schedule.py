"""The schedule of a run: learning rate, evaluations and end."""

import math
from collections.abc import Iterator, Sequence
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


def learning_rate(
    options: Training, step: int, *, last: int | None = None, lowered: int = 0
) -> float:
    """The learning rate of a step.

    A linear warm-up, and then, with t = step and w = warmup,

        constant      lr
        inverse_sqrt  lr · √(w / t)                            Vaswani et al. 2017, equation 3
        cosine        lr · ½ (1 + cos π (t − w) / (last − w))  Loshchilov & Hutter 2017, equation 5
        plateau       lr · lower_by ^ lowered

    Equation 3, d^−½ · min(t^−½, t · w^−3/2), has its maximum at t = w; here the maximum is `lr`.

    >>> options = Training(lr=0.1, schedule="inverse_sqrt", warmup=4, steps=100)
    >>> [round(learning_rate(options, step), 3) for step in (1, 2, 4, 16, 100)]
    [0.025, 0.05, 0.1, 0.05, 0.02]

    Args:
        step: counted from 1
        last: the last step, for cosine
        lowered: number of times a plateau has lowered it
    """
    warmup = options.warmup
    if step <= warmup:
        return options.lr * step / warmup
    match options.schedule:
        case "inverse_sqrt":
            return options.lr * math.sqrt(warmup / step)
        case "cosine":
            assert last is not None
            share = min(1.0, (step - warmup) / max(1, last - warmup))
            return options.lr * 0.5 * (1 + math.cos(math.pi * share))
        case "plateau":
            return options.lr * options.lower_by**lowered
        case _:
            return options.lr


def times_lowered(ranks: Sequence[Any], after: int) -> int:
    """Number of times a plateau has lowered the learning rate; larger ranks are better.

    >>> times_lowered([1, 2, 2, 1, 2, 1, 3], after=2)
    2

    Args:
        ranks: of the evaluations so far
        after: number of evaluations without improvement that lower it once
    """
    best, stale, lowered = None, 0, 0
    for rank in ranks:
        if best is None or rank > best:
            best, stale = rank, 0
            continue
        stale += 1
        if stale == after:
            lowered, stale = lowered + 1, 0
    return lowered
