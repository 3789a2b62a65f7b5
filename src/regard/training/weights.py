"""Weights in safetensors files: each tensor once, shared ones shared again when read."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.core.files import atomic_file


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; what two modules share comes under its first name.

    >>> model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    >>> model[1].weight = model[0].weight
    >>> list(weights(model))
    ['0.weight']
    """
    found: dict[str, Tensor] = {}
    seen: set[tuple] = set()
    for name, tensor in model.state_dict().items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() == 0 or key not in seen:
            seen.add(key)
            found[name] = tensor
    return found


def put_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: str = "it") -> None:
    """Copy weights into a model of the same architecture.

    Args:
        source: where they come from, for errors

    Raises:
        ValueError: if the model has other names or shapes
    """
    own = weights(model)
    for name in [*own, *tensors]:
        if name not in tensors or name not in own:
            where = "the model has" if name in tensors else f"{source} has"
            raise ValueError(f"{source} is of another model: {where} no {name}")
        if own[name].shape != tensors[name].shape:
            raise ValueError(
                f"{source} is of another model: {name} has shape {tuple(tensors[name].shape)} "
                f"there and {tuple(own[name].shape)} in the model"
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        FileNotFoundError: if there is none
        ValueError: if it is truncated or no such file
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; `OSError` if the disk is full."""
    try:
        save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"could not write {path}: {error}") from error


def write_model(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Put weights in place of those that were there, in one move."""
    with atomic_file(path) as part:
        write_tensors(part, tensors)
