"""Weights in safetensors files with a checksum; shared tensors are stored once."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from regard.system.files import atomic_file


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a shared tensor is listed under its first name.

    >>> model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    >>> model[1].weight = model[0].weight
    >>> list(weights(model))
    ['0.weight']
    """
    found: dict[str, Tensor] = {}
    seen: set[tuple] = set()
    for name, tensor in model.state_dict().items():
        local = local_part(tensor)
        key = (local.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() == 0 or key not in seen:
            seen.add(key)
            found[name] = tensor
    return found


def is_sharded(model: nn.Module) -> bool:
    """Whether each process has only a part of the model's weights."""
    return any(hasattr(parameter, "to_local") for parameter in model.parameters())


def local_part(tensor: Tensor) -> Tensor:
    """The part of a sharded tensor that is in this process; any other tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@torch.no_grad()
def copy_into(tensor: Tensor, whole: Tensor) -> None:
    """Copy a tensor into one of the same shape, of which this process may have only a part."""
    if hasattr(tensor, "to_local"):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(tensor, DTensor)
        mesh, placements = tensor.device_mesh, tensor.placements
        whole = distribute_tensor(whole.to(tensor.device), mesh, placements, src_data_rank=None)
    tensor.copy_(whole)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model, gathered from all processes if it is sharded."""
    return {
        name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        for name, tensor in weights(model).items()
    }


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
    for name, tensor in own.items():
        copy_into(tensor, tensors[name])


def start_from(model: nn.Module, init: str | None) -> None:
    """Copy the weights of a finished run into a new model, if `training.init` names one.

    Raises:
        FileNotFoundError: if the run has no weights yet
        ValueError: if they are damaged, or of a model of other shapes
    """
    if init is not None:
        path = Path(init) / "model.safetensors"
        put_weights(model, read_tensors(path), source=f"training.init: {path}")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        FileNotFoundError: if there is none
        ValueError: if it is truncated, not a safetensors file, or its checksum is wrong
    """
    return _read(path)[0]


def read_steps(path: Path) -> list[int]:
    """The steps whose weights `write_model` wrote; [] if they are not recorded or unreadable."""
    try:
        return _read(path)[1]
    except (FileNotFoundError, ValueError):
        return []


def write_tensors(path: Path, tensors: Mapping[str, Tensor], steps: Sequence[int] = ()) -> None:
    """Write a safetensors file with a checksum.

    Args:
        steps: of the run, whose weights these are

    Raises:
        OSError: if the disk is full
    """
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # one key: safetensors writes several in random order
    metadata = json.dumps({"steps": list(steps), "sha256": _checksum(whole, list(steps))})
    try:
        # not save_file: killed, it would leave a temporary file of its own beside this one
        path.write_bytes(serialize(whole, {"regard": metadata}))
    except SafetensorError as error:
        raise OSError(f"could not write {path}: {error}") from error


def write_model(path: Path, tensors: Mapping[str, Tensor], steps: Sequence[int] = ()) -> None:
    """Replace a safetensors file atomically."""
    with atomic_file(path) as part:
        write_tensors(part, tensors, steps)


def _read(path: Path) -> tuple[dict[str, Tensor], list[int]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error
    if not metadata or "format" in metadata:  # written by another program
        return tensors, []
    try:
        record: dict[str, Any] = json.loads(metadata["regard"])
        if record["sha256"] == _checksum(tensors, record["steps"]):
            return tensors, record["steps"]
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(f"{path} is damaged: its checksum does not match its content")


def _checksum(tensors: Mapping[str, Tensor], steps: Any) -> str:
    digest = hashlib.sha256(json.dumps(steps).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
