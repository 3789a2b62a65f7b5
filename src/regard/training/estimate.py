"""An estimate of how long a run takes, from a few timed steps."""

import time
from typing import NamedTuple

import torch
from torch import nn

from regard.training.config import Config
from regard.training.device import TaskLoss, find_device
from regard.training.optimizer import AdamW
from regard.training.schedule import last_step
from regard.training.task import Loss, Task

TIME_LIMIT = 10.0  # seconds of timing


class Estimate(NamedTuple):
    """The cost of the steps of a run, without evaluations."""

    step_seconds: float
    per_second: float  # units of the task
    steps: int  # of the whole run, if patience does not end it
    seconds: float  # of the whole run


def estimate(task: Task, config: Config, model: nn.Module, *, batches: int = 8) -> Estimate:
    """Time steps on batches from all over the first epoch; only the model is changed.

    Args:
        batches: maximum number; timing also ends after a few seconds
    """
    options = config.training
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    model.to(find_device(options.device))
    compute, optimizer = TaskLoss(task, model, options), AdamW(model, options)
    model.train()
    size = task.steps(0)
    if size < 1:
        raise ValueError("the first epoch has no batches: is there any training data?")
    times, count = [], 0
    for number in [0, *(size * part // batches for part in range(batches))]:
        began = time.perf_counter()
        loss: Loss = compute(task.batch(0, number))
        loss.total.backward()
        optimizer.step(options.lr, loss.count)
        times.append(time.perf_counter() - began)
        count += loss.count if len(times) > 1 else 0
        if len(times) > 1 and sum(times) > TIME_LIMIT:
            break
    spent = sum(times[1:])  # the first one warms up
    each = spent / len(times[1:]) * options.accumulate
    last = last_step(task, options)
    ends = [] if last is None else [each * last]
    ends += [] if options.minutes is None else [options.minutes * 60]
    return Estimate(each, count / spent, round(min(ends) / each), min(ends))
