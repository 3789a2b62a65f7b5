"""Reuses the memory of large results while no tensor needs it.

The system clears the pages of every new block of 32 MB or more on first use, which takes up to a
fifth as long as the attention that fills them. Smaller blocks are reused by malloc itself.
"""

import math
import os
import threading

import numpy as np
import torch
from torch import Tensor

LARGE = 1 << 25  # bytes from which malloc returns a freed block to the system
CAPACITY = 1 << 28  # bytes of free buffers that are kept

_free: dict[int, list[np.ndarray]] = {}  # by size
_lock = threading.RLock()  # reentrant: a garbage collection may return a buffer at any time


def _unlock_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # the thread that held it exists in the parent only


os.register_at_fork(after_in_child=_unlock_in_child)


class PooledArray(np.ndarray):
    """A view of a buffer that returns to the pool when no tensor uses it any more."""

    def __del__(self) -> None:
        buffer = self.base
        if isinstance(buffer, np.ndarray) and buffer.nbytes <= CAPACITY:
            with _lock:
                held = sum(size * len(_free.get(size, ())) for size in list(_free))
                if buffer.nbytes + held > CAPACITY:
                    _free.clear()
                _free.setdefault(buffer.nbytes, []).append(buffer)


def empty(shape: tuple[int, ...], dtype: torch.dtype, *, zero: bool = False) -> Tensor:
    """An uninitialized CPU tensor, or one of zeros; a large one in a buffer of the pool.

    >>> empty((2, 3), torch.float32, zero=True)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        make = torch.zeros if zero else torch.empty
        return make(shape, dtype=dtype, device="cpu")
    with _lock:
        buffers = _free.get(size)
        buffer = buffers.pop() if buffers else None
    if buffer is None:
        buffer = np.empty(size, np.uint8)  # numpy requests huge pages, which are cleared faster
    tensor = torch.from_numpy(buffer.view(PooledArray)).view(dtype).view(shape)
    return tensor.zero_() if zero else tensor


def release() -> None:
    """Return the memory of all free buffers to the system."""
    with _lock:
        _free.clear()
