"""The random state of Python, numpy and torch: stored as JSON, restored exactly."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch


def seed_all(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """The states of all generators, in types that JSON can represent.

    >>> before = random_state()
    >>> first = torch.rand(3)
    >>> restore_random(before)
    >>> torch.equal(first, torch.rand(3))
    True
    """
    version, numbers, gauss = random.getstate()
    legacy = numpy.random.get_state(legacy=True)
    assert isinstance(legacy, tuple)
    kind, keys, position, has_gauss, cached = legacy
    states = [torch.get_rng_state(), *(device.get_rng_state() for device in _accelerators())]
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [kind, keys.tolist(), position, has_gauss, cached],
        "torch": [bytes(state.numpy()).hex() for state in states],
    }


def restore_random(state: dict[str, Any]) -> None:
    """Restore what `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    numpy.random.set_state((kind, numpy.array(keys, numpy.uint32), position, has_gauss, cached))
    cpu, *devices = [
        torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8) for text in state["torch"]
    ]
    torch.set_rng_state(cpu)
    for module, device in zip(_accelerators(), devices, strict=False):
        module.set_rng_state(device)


def _accelerators() -> list[Any]:
    """The module of the accelerator in use, whose current device has a generator of its own."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return [torch.cuda]
    return [torch.mps] if torch.backends.mps.is_available() else []


@contextmanager
def preserved_random_state() -> Iterator[None]:
    """Restore the random state on exit."""
    state = random_state()
    try:
        yield
    finally:
        restore_random(state)
