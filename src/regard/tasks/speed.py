"""How fast several models train, measured side by side."""

import time
from collections.abc import Mapping

import torch
from torch import nn

from regard.data import Batch
from regard.tasks.translate import Translate

ROUNDS = 5  # at least
ENOUGH = 2.0  # seconds of timing, after which there are no more rounds
MOST = 25  # rounds of models that are quick


def training_speeds(
    tasks: Mapping[str, Translate], *, alone: bool = False, seed: int = 1
) -> dict[str, float]:
    """Target tokens a second through the forward and the backward pass of fresh models.

    The models take turns, and of each the fastest round counts: what else the machine does then
    slows all of them or none. Steps of the optimizer, which do not grow with the length, are left
    out.

    Args:
        tasks: by name, what to build and to train it on
        alone: a batch of one sentence, where nothing is parallel but what the model makes so;
            otherwise the task's own batches
        seed: of the models
    """
    torch.manual_seed(seed)
    models = {name: task.build().train() for name, task in tasks.items()}
    batches = {
        name: task.corpus.batch([0]) if alone else task.batch(0, 0) for name, task in tasks.items()
    }
    fastest: dict[str, float] = {}
    began = time.perf_counter()
    for number in range(MOST + 1):  # the first round warms up
        for name, task in tasks.items():
            speed = _speed(task, models[name], batches[name])
            if number:
                fastest[name] = max(speed, fastest.get(name, 0.0))
        if number >= ROUNDS and time.perf_counter() - began > ENOUGH:
            break
    return fastest


def _speed(task: Translate, model: nn.Module, batch: Batch) -> float:
    began = time.perf_counter()
    loss = task.loss(model, batch)
    loss.total.backward()
    spent = time.perf_counter() - began
    model.zero_grad()
    return loss.count / spent
