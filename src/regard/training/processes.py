"""Several processes that train one model, started by torchrun; without it each call is trivial.

A step's batch is the same whatever the number of processes: each takes some of its rows, the
gradients are summed, and the first process writes all files.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.system import torch_internals
from regard.training.config import Config, Distributed, changed_keys, versions
from regard.training.device import device_of, find_device, to_device
from regard.training.task import Task

LOST = ("gloo", "NCCL", "pair closure", "Timed out", "Connection closed", "Connection reset")
"""Words of torch's errors about other processes, not all of which have a type of their own."""

GRACE = 1.0  # seconds in which processes report that they, too, wait for another

Result = TypeVar("Result")


def launched() -> tuple[int, int]:
    """The rank of this process, from 0, and the number of processes that torchrun started."""
    count = int(os.environ.get("WORLD_SIZE", 1))
    return (int(os.environ["RANK"]), count) if count > 1 else (0, 1)


def rank() -> int:
    """The number of this process among those that train together, from 0."""
    return dist.get_rank() if world() > 1 else 0


def world() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def continues(run: Path) -> bool:
    """Whether torchrun started the processes again after one had failed, to resume a run."""
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    return restarts > 0 and (run / "config.toml").is_file()


@contextmanager
def joined(config: Config) -> Iterator[None]:
    """Join the other processes of torchrun, if there are any, and leave them at the end.

    Raises:
        RuntimeError: if a process does not join, or does not answer later, naming it
        ValueError: if the processes have other versions or configurations
    """
    own, expected = launched()
    if expected == 1 or world() > 1:
        yield
        return
    options = config.distributed
    device = find_device(config.training.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    limit = timedelta(seconds=options.timeout)
    try:
        store, *_ = next(dist.rendezvous("env://", timeout=limit))
        # torchrun keeps its store when it restarts workers: the addresses in it are old ones
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt-{attempt}", store)
        dist.init_process_group(backend, store=store, rank=own, world_size=expected, timeout=limit)
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"rank {own} waited {options.timeout:g} s for {expected} processes to join: check "
            f"that torchrun was started on every machine ({_first_line(error)})"
        ) from error
    try:
        _check_equal(config)
        yield
    except RuntimeError as error:  # the group stays: operations on it may still be waiting
        if isinstance(error, dist.DistError) or any(word in str(error) for word in LOST):
            raise RuntimeError(_lost(options)) from error
        raise
    time.sleep(0.1)  # gloo's thread may still free the last operation; torch would deadlock
    dist.destroy_process_group()


def on_first(function: Callable[[], Result]) -> Result:
    """Call a function in the first process and return its result in all of them.

    Raises:
        Exception: in the first process what the function raised; the others exit
    """
    if world() == 1:
        return function()
    found: list[Any] = [None, False]
    failure: BaseException | None = None
    if rank() == 0:
        try:
            found = [function(), True]
        except BaseException as error:
            failure = error
    dist.broadcast_object_list(found)
    if failure is not None:
        raise failure
    if not found[1]:
        raise SystemExit(1)  # the first process reports it
    return found[0]


def summed(*numbers: float) -> list[float]:
    """Each number, summed over all processes, in float64."""
    if world() == 1:
        return list(numbers)
    total = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(total)
    return total.tolist()


def gathered(value: Result) -> list[Result]:
    """The values of all processes, in the order of their ranks."""
    if world() == 1:
        return [value]
    found: list[Any] = [None] * world()
    dist.all_gather_object(found, value)
    return found


def shared(batches: Iterable[Any], model: nn.Module) -> Iterator[Any]:
    """The batches that this process evaluates, on the device of the model."""
    device = device_of(model)
    for batch in islice(batches, rank(), None, world()):
        yield to_device(batch, device)


def check_divisible(task: Task) -> None:
    """Raise `ValueError` if the batches of a task cannot be shared out among the processes."""
    if world() == 1:
        return
    if not getattr(task, "divisible", True):
        raise ValueError(
            f"a batch of {type(task).__name__} cannot be divided: train it with one process"
        )
    rows = rows_of(task.batch(0, 0))
    if rows < world():
        raise ValueError(
            f"a batch has {rows} rows, fewer than {world()} processes: use larger batches or fewer "
            "processes"
        )


def rows_of(batch: Any) -> int:
    """Number of rows of a batch."""
    return len(batch if isinstance(batch, Tensor) else batch[0])


def share(batch: Any) -> Any:
    """The rows of a batch that this process computes: every `world()`-th one.

    Rows of a batch are padded to one length, so that all processes have as many tokens, but for a
    row. Where there are too few rows it is the first one, and `own_rows` is False.
    """
    if world() == 1:
        return batch
    first = rank() if own_rows(batch) else 0
    if isinstance(batch, Tensor):
        return batch[first :: world()]
    rows = [part[first :: world()] for part in batch]
    return type(batch)(*rows) if hasattr(batch, "_fields") else tuple(rows)


def own_rows(batch: Any) -> bool:
    """Whether this process has rows of its own in a batch."""
    return world() == 1 or rank() < rows_of(batch)


def parallel(loss: nn.Module, model: nn.Module, options: Distributed) -> nn.Module:
    """A module whose gradients are the mean over all processes: by DDP, or sharded by FSDP2.

    Args:
        loss: computes the loss of a batch with the model, all within its forward pass
        model: a part of it; sharded in place
    """
    if world() == 1:
        return loss
    if options.shard:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        from regard.layers import DecoderLayer, EncoderLayer

        mesh = init_device_mesh(device_of(model).type, (world(),))
        for part in model.modules():
            if isinstance(part, DecoderLayer | EncoderLayer):
                fully_shard(part, mesh=mesh)
        fully_shard(loss, mesh=mesh)
        return loss
    # A batch may not use all parameters. Looking for them also keeps the order in which gradients
    # are summed, which would otherwise change after the first step of each session. One that is
    # never used prevents a warning where there are none.
    loss.register_parameter("unused", nn.Parameter(torch.zeros((), device=device_of(model))))
    return nn.parallel.DistributedDataParallel(loss, find_unused_parameters=True)


def _check_equal(config: Config) -> None:
    """Raise `ValueError` if a process has other versions, or another configuration."""
    own = {"versions": versions(), **config.model_dump(mode="json", exclude={"versions"})}
    others = gathered(own)

    def compare() -> None:
        for number, other in enumerate(others):
            for key, first, here in changed_keys(others[0], other):
                raise ValueError(
                    f"rank {number} has {key} = {here!r} and rank 0 has {first!r}: install the "
                    "same versions and give the same configuration on every machine"
                )

    on_first(compare)


def _lost(options: Distributed) -> str:
    """The error when another process is gone or hangs: those that do not report it themselves."""
    store = torch_internals.store_of_processes()
    try:
        missing = [] if store is None else _missing(store)
    except (dist.DistError, RuntimeError):  # its host is gone
        missing = ["0"]
    names = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(missing)}"
    who = f"{names} ended or did not answer for {options.timeout:g} s" if missing else "timed out"
    return (
        f"rank {rank()}: {who}; the last checkpoint is kept, and torchrun --max-restarts 3 would "
        "resume from it"
    )


def _missing(store: Any) -> list[str]:
    """The ranks that do not say that they are still there."""
    store.set(f"waiting/{rank()}", "")
    time.sleep(GRACE if rank() else 2 * GRACE)  # the first may be where the others look it up
    keys = {number: f"waiting/{number}" for number in range(world())}
    return [str(number) for number, key in keys.items() if not store.check([key])]


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]
