"""How the CPU kernels are compiled: lazily, once per dtype, with numba, cached on disk.

Nothing here imports numba before a kernel runs, so the package works without it.
"""

import functools
import hashlib
import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.system.process import in_forked_child

from .kernel_cache import compile_cached

# Everything but "nnan": masks go by loop bounds and finite sentinels, and NaN must stay NaN.
FASTMATH = {"contract", "reassoc", "arcp", "nsz", "ninf"}
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}
WORK_PER_THREAD = 1 << 15  # evaluations of tanh below which waking a second thread costs more

_lock = threading.RLock()
_left_alone = False


_NUMBA = importlib.util.find_spec("numba") is not None  # a compiler can trace a constant


def has_numba() -> bool:
    return _NUMBA


@contextmanager
def without_kernels() -> Iterator[None]:
    """Inside, torch serves instead of the kernels: for a process too short to import numba."""
    global _left_alone
    before, _left_alone = _left_alone, True
    try:
        yield
    finally:
        _left_alone = before


def available(tensor: Tensor) -> bool:
    """Whether the compiled kernels can take a tensor, after halves are promoted to float32.

    Not without numba, not off the CPU, not inside `without_kernels`, and not in a forked child,
    which OpenMP would end.

    >>> available(torch.zeros(2, dtype=torch.int64))
    False
    """
    return (
        tensor.device.type == "cpu"
        and not _left_alone
        and tensor.is_floating_point()
        and not in_forked_child()
        and has_numba()
    )


def inner(function: Callable) -> Any:
    """Compile a function that kernels call; it becomes part of them."""
    import numba

    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)(function)


@functools.cache
def source_digest() -> str:
    """A digest of the source of all kernels, so that an edit in any file invalidates the cache."""
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted(Path(__file__).parent.glob("loops/*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def parallel() -> bool:
    """Whether numba may run loops on several threads: with OpenMP or TBB, not with its workqueue.

    The workqueue ends the process when two Python threads use it at once.
    """
    import numba

    if numba.config.THREADING_LAYER == "default":
        numba.config.THREADING_LAYER = "omp"
    before = torch.get_num_threads()
    try:
        numba.set_num_threads(1)  # starts the layer, or raises
        return numba.threading_layer() != "workqueue"
    except ValueError:
        return False
    finally:
        torch.set_num_threads(before)  # OpenMP, which torch shares, is now set to all cores


class Kernel:
    """A function compiled at its first call for a dtype, which is T in its signature."""

    def __init__(self, function: Callable, signature: str) -> None:
        self.function, self.signature = function, signature
        self.compiled: dict[np.dtype, Callable] = {}
        functools.update_wrapper(self, function)

    def __call__(self, work: int, *arrays: Any) -> Any:
        """Run with as many threads as torch uses and the amount of work deserves."""
        dtype = arrays[0].dtype
        function = self.compiled.get(dtype) or self.compile(dtype)
        if parallel():
            import numba

            threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
            numba.set_num_threads(max(1, min(threads, work // WORK_PER_THREAD)))
        return function(*arrays)

    def compile(self, dtype: np.dtype) -> Callable:
        with _lock:
            if dtype not in self.compiled:
                threads = "parallel" if parallel() else "serial"
                name = f"{self.function.__module__}.{self.function.__name__}-{threads}"
                name = f"{name}-{source_digest()}"
                signature = self.signature.replace("T", dtype.name)
                options = {**OPTIONS, "parallel": parallel()}
                self.compiled[dtype] = compile_cached(self.function, signature, name, options)
            return self.compiled[dtype]


def kernel(signature: str) -> Callable[[Callable], Kernel]:
    return functools.partial(Kernel, signature=signature)
