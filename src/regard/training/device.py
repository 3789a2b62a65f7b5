"""Where a step is computed and in which precision: device, autocast, compiler."""

import os
import shutil
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.config import Training
from regard.training.task import Loss, Task

INITIAL_SCALE = 2.0**6  # of a float16 loss, which is a sum, of gradients up to 1 for each token
GROW_AFTER = 2000  # steps without overflow after which the scale is doubled


def find_device(name: str) -> torch.device:
    """The device of a name: "auto", "cpu", "cuda", "cuda:1" or "mps".

    "auto" is CUDA, else MPS, else the CPU. Of several processes on a machine each takes the CUDA
    device of its own number.

    >>> find_device("cpu")
    device(type='cpu')

    Raises:
        ValueError: if this machine does not have the device
    """
    found = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if found[kind])
    if name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    kind, _, number = name.partition(":")
    if not int(number or 0) < found.get(kind, 0):
        there = [f"cuda:{number}" for number in range(found["cuda"])]
        there += ["mps"] * found["mps"] + ["cpu"]
        raise ValueError(f"device {name} is not available here; choose {' or '.join(there)}")
    return torch.device(name)


def to_device(batch: Any, device: torch.device) -> Any:
    """The tensors of a batch (a tensor, or a tuple of tensors and others) on a device.

    Copies to CUDA are pinned and asynchronous.
    """
    if isinstance(batch, tuple):
        moved = [to_device(part, device) for part in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else tuple(moved)
    if not isinstance(batch, Tensor) or batch.device == device:
        return batch
    if device.type == "cuda" and batch.device.type == "cpu" and not batch.is_sparse:
        return batch.pin_memory().to(device, non_blocking=True)
    return batch.to(device)


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters; the CPU if it has none."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


class TaskLoss(nn.Module):
    """The loss of a task as a module: moves a batch to the device and computes under autocast.

    Args:
        task: computes the loss
        model: on its device
        options: `precision` and `compile`

    Raises:
        ValueError: if the model is to be compiled without a compiler
    """

    def __init__(self, task: Task, model: nn.Module, options: Training) -> None:
        super().__init__()
        self.task, self.model, self.device = task, model, device_of(model)
        self.dtype = getattr(torch, options.precision)
        if options.compile:
            check_compiler(self.device)
            model.compile()

    def forward(self, batch: Any) -> Loss:
        """The loss of a batch of the task, wherever it is."""
        batch = to_device(batch, self.device)
        if self.dtype == torch.float32:
            return self.task.loss(self.model, batch)
        with torch.autocast(self.device.type, dtype=self.dtype):
            return self.task.loss(self.model, batch)


def check_compiler(device: torch.device) -> None:
    """Raise `ValueError` if torch.compile has no compiler for this device."""
    if device.type == "cpu":
        compilers = [os.environ.get("CXX"), "g++", "clang++", "c++"]
        if not any(map(shutil.which, filter(None, compilers))):
            raise ValueError(
                "training.compile needs a C++ compiler, but neither g++ nor clang++ is in PATH: "
                "install one, or set training.compile = false"
            )
    elif device.type == "cuda":
        try:
            __import__("triton")
        except ModuleNotFoundError as error:
            raise ValueError(
                "training.compile needs triton for CUDA: install it, or set training.compile = "
                "false"
            ) from error


def next_scale(scale: float, step: int, finite: bool) -> float:
    """The scale of the loss after a step, in float16. Micikevicius et al. 2018, section 3.2.

    >>> next_scale(1024.0, step=7, finite=False), next_scale(1024.0, step=4000, finite=True)
    (512.0, 2048.0)
    """
    if not finite:
        return scale / 2
    return scale * 2 if step % GROW_AFTER == 0 else scale
