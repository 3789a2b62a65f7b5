"""A run directory opened again: its configuration and the weights of its model."""

import tomllib
from pathlib import Path
from typing import Any

from torch import nn

from regard.core.names import nearest

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
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(run) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(
            f"{run} has no {WEIGHTS} yet: train it further, with regard train --resume"
        )
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from error
    own = model.state_dict(keep_vars=True)
    there = {id(own[name]) for name in tensors if name in own}
    missing = [name for name, tensor in own.items() if id(tensor) not in there]
    wrong = [
        *missing,
        *(name for name in tensors if name not in own),
        *(name for name in tensors if name in own and tensors[name].shape != own[name].shape),
    ]
    if wrong:
        raise ValueError(
            f"{path} does not fit the model of its config.toml: {wrong[0]} is missing, unknown or "
            f"of another shape; {len(wrong)} tensors are so"
        )
    model.load_state_dict(tensors, strict=False)  # what is tied may be stored once
    return model.eval()
