"""A run directory opened again: its configuration and the weights of its model."""

import tomllib
from pathlib import Path
from typing import Any

from torch import nn

from regard.core.names import nearest
from regard.training.weights import put_weights, read_tensors

CONFIG, WEIGHTS = "config.toml", "model.safetensors"


def load(run: str | Path) -> Any:
    """Open a trained model: the object of its task, such as a `Translator`.

    Args:
        run: the directory that `regard train` has written

    Raises:
        FileNotFoundError, ValueError: if it is no run, has no model yet, or is damaged
    """
    from regard.tasks import TASKS

    task = read_run_config(run)["task"]
    if task not in TASKS:
        raise ValueError(f"{run}: unknown task {task!r}{nearest(task, TASKS)}")
    return TASKS[task].open(Path(run))


def read_run_config(run: str | Path) -> dict[str, Any]:
    """What a run was made with."""
    path = Path(run) / CONFIG
    if not path.is_file():
        what = "has no config.toml in it" if Path(run).is_dir() else "is not there"
        raise FileNotFoundError(f"{run} is no run of regard train: it {what}")
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    if not isinstance(config.get("task"), str):
        raise ValueError(f"{path} names no task")
    return config


def load_weights(model: nn.Module, run: str | Path) -> nn.Module:
    """Put the weights of a run into a model that was built like its own, ready to be used."""
    path = Path(run) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{run} has no {WEIGHTS} yet: regard train --resume goes on")
    put_weights(model, read_tensors(path), source=str(path))
    return model.eval()
