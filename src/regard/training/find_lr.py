"""The learning rate range test: a few steps, each with a larger learning rate than the one before.

Smith 2017, section 3.3: at small rates the loss hardly falls, then it falls quickly, then it rises.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from regard.training.config import Config
from regard.training.device import TaskLoss, find_device
from regard.training.optimizer import AdamW
from regard.training.random_state import seed_all
from regard.training.task import Task
from regard.training.weights import start_from

LOWEST, HIGHEST, STEPS = 1e-6, 1.0, 120
MEMORY = 0.9  # share of the smoothed loss that is kept at each step
DIVERGED = 2.0  # times the first loss
BELOW = 10.0  # how far below the minimum of the curve the suggestion is
LEAST_FALL = 0.02  # of the loss, for a suggestion


class Sweep(NamedTuple):
    """The smoothed loss of each learning rate, until the end or divergence."""

    points: list[tuple[float, float]]  # (learning rate, loss per unit of the task)
    suggestion: float | None  # None if the loss does not fall


def find_lr(
    task: Task, config: Config, *, on_step: Callable[[int, float, float], None] = lambda *_: None
) -> Sweep:
    """Train a new model for a few steps with a learning rate that grows from 1e-6 to 1.

    Nothing is written. Warm-up and schedule are left out; all other settings are those of a run.

    Args:
        on_step: called after each step with its number from 1, its learning rate and its loss
    """
    options = config.training
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    seed_all(config.seed)
    model = task.build().to(find_device(options.device))
    start_from(model, options.init)
    compute, optimizer = TaskLoss(task, model, options), AdamW(model, options)
    model.train()
    batches = _batches(task)
    rates, losses = [], []
    for step in range(STEPS):
        rate = LOWEST * (HIGHEST / LOWEST) ** (step / (STEPS - 1))
        total, count = 0.0, 0
        for batch in itertools.islice(batches, options.accumulate):
            loss = compute(batch)
            loss.total.backward()
            total, count = total + loss.total.item(), count + loss.count
        norm = optimizer.step(rate, count)
        if not math.isfinite(total) or not math.isfinite(norm):
            break
        rates.append(rate)
        losses.append(total / count)
        on_step(step + 1, rate, losses[-1])
        if losses[-1] > DIVERGED * losses[0]:
            break
    points = list(zip(rates, smoothed(losses), strict=True))
    return Sweep(points, suggest(points))


def smoothed(losses: Sequence[float]) -> list[float]:
    """Exponential averages, corrected for the start as in Adam. Kingma & Ba 2015, section 3.

    >>> [round(loss, 6) for loss in smoothed([3.0, 3.0, 3.0])]
    [3.0, 3.0, 3.0]
    """
    mean, found = 0.0, []
    for step, loss in enumerate(losses, start=1):
        mean = MEMORY * mean + (1 - MEMORY) * loss
        found.append(mean / (1 - MEMORY**step))
    return found


def suggest(points: Sequence[tuple[float, float]]) -> float | None:
    """A tenth of the rate at which the smoothed loss is lowest, to two digits.

    >>> suggest([(1e-4, 5.0), (1e-3, 4.0), (1e-2, 2.0), (1e-1, 7.0)])
    0.001

    Returns: None if the loss falls by less than 2 %
    """
    if not points:
        return None
    rate, least = min(points, key=lambda point: point[1])
    if least > (1 - LEAST_FALL) * points[0][1]:
        return None
    return float(f"{rate / BELOW:.1e}")


def _batches(task: Task) -> Iterator[Any]:
    """The batches of all epochs, in order."""
    for epoch in itertools.count():
        size = task.steps(epoch)
        if size < 1:
            raise ValueError(f"epoch {epoch + 1} has no batches: is there any training data?")
        for step in range(size):
            yield task.batch(epoch, step)
