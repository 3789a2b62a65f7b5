"""Checkpoints of a sharded model: each process writes its part, any number of them reads it.

`torch.distributed.checkpoint` writes them, as safetensors, which hold no code.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from regard.system.files import checksum
from regard.training.processes import world

MODEL = "model/"  # prefix of the names of weights


def write_shards(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this process's part of all tensors; called in every process."""
    whole = {name: tensor.detach() for name, tensor in tensors.items()}
    try:
        writer = dcp.HuggingFaceStorageWriter(str(directory), save_distributed=True)
        dcp.save(whole, storage_writer=writer)
    except CheckpointException as error:
        failed = {number: trace[0] for number, trace in error.failures.items()}
        raise OSError("; ".join(f"rank {n}: {why}" for n, why in failed.items())) from error


def read_shards(
    directory: Path,
    tensors: Mapping[str, Tensor],
    checksums: Mapping[str, str],
    *,
    alone: bool = False,
) -> None:
    """Fill tensors, sharded or whole, with what any number of processes has written.

    Args:
        checksums: of the files, by `shard_checksums`
        alone: whether only this process calls it

    Raises:
        ValueError: if the files are damaged, or a tensor is missing or has another shape
    """
    if shard_checksums(directory) != dict(checksums):
        raise ValueError(f"{directory} is damaged: the checksums of its files do not match")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that there is one process
            reader = dcp.HuggingFaceStorageReader(str(directory))
            dcp.load(dict(tensors), storage_reader=reader, no_dist=alone or world() == 1)
    except (CheckpointException, RuntimeError, ValueError) as error:
        raise ValueError(f"{directory} is of another model: {error}") from error


def read_weights(directory: Path, checksums: Mapping[str, str]) -> dict[str, Tensor]:
    """The weights of a sharded checkpoint, in full, read by this process alone."""
    metadata: Any = dcp.HuggingFaceStorageReader(str(directory)).read_metadata()
    tensors = {
        name: torch.empty(about.size, dtype=about.properties.dtype)
        for name, about in metadata.state_dict_metadata.items()
        if name.startswith(MODEL)
    }
    read_shards(directory, tensors, checksums, alone=True)
    return {name.removeprefix(MODEL): tensor for name, tensor in tensors.items()}


def shard_checksums(directory: Path) -> dict[str, str]:
    """SHA-256 of each file that `write_shards` wrote, by name."""
    return {path.name: checksum(path) for path in sorted(directory.glob("shard-*.safetensors"))}
