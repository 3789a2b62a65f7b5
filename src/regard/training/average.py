"""The weights of several checkpoints as one."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.training.weights import read_tensors


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of checkpoints, summed in float64, in the order given.

    Vaswani et al. 2017, section 6.1, average the last ones. What is no float is taken from the
    last one.

    Args:
        paths: folders with a `model.safetensors`
    """
    if not paths:
        raise ValueError("there is no checkpoint to average")
    last = read_tensors(paths[-1] / "model.safetensors")
    if len(paths) == 1:
        return last
    floats = [name for name, tensor in last.items() if tensor.is_floating_point()]
    sums = {name: torch.zeros_like(last[name], dtype=torch.float64) for name in floats}
    for path in paths:
        tensors = read_tensors(path / "model.safetensors")
        for name in floats:
            sums[name] += tensors[name]
    return last | {name: (sums[name] / len(paths)).to(last[name].dtype) for name in floats}
