"""A run directory opened again: the object of its task, and the weights of its model."""

from pathlib import Path
from typing import Any

from torch import nn

from regard.core.names import did_you_mean
from regard.training.run_directory import read_run_config
from regard.training.weights import put_weights, read_tensors

WEIGHTS = "model.safetensors"


def load(run: str | Path) -> Any:
    """Open a trained model: the object of its task, such as a `Translator`.

    Args:
        run: the directory that `regard train` has written

    Raises:
        FileNotFoundError, ValueError: if it is no run, has no model yet, or is damaged
    """
    from regard.tasks import TASKS

    task = read_run_config(run).task
    if task not in TASKS:
        raise ValueError(f"{run}: unknown task {task!r}{did_you_mean(task, TASKS)}")
    return TASKS[task].open(Path(run))


def load_weights(model: nn.Module, run: str | Path) -> nn.Module:
    """Put the weights of a run into a model that was built like its own, ready to be used."""
    path = Path(run) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{run} has no {WEIGHTS} yet: regard train --resume goes on")
    put_weights(model, read_tensors(path), source=str(path))
    return model.eval()
