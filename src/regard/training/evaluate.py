"""The model judged on held-out data, without a trace in the training."""

import math
import sys

import torch
from torch import nn

from regard.training.random_state import random_kept
from regard.training.state import Evaluation
from regard.training.task import Task


def evaluate(task: Task, model: nn.Module, step: int) -> Evaluation:
    """Figures of held-out data; the random numbers that it draws are given back.

    Raises:
        ValueError: if the task's metric is not among its figures
    """
    model.eval()
    with torch.no_grad(), random_kept():
        figures = {name: float(value) for name, value in task.evaluate(model).items()}
    model.train()
    if task.metric not in figures:
        given = ", ".join(figures) or "nothing"
        raise ValueError(f"the task's evaluate() must give {task.metric!r}, it gave {given}")
    score = figures[task.metric] if task.larger_is_better else -figures[task.metric]
    return Evaluation(step, -sys.float_info.max if math.isnan(score) else score, figures)
