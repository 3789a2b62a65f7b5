"""Memory for large results: blocks that were used before, while they last.

The system clears the pages of every new block of 32 MB or more when they are touched first, which
takes up to a fifth as long as the attention that fills them. Smaller ones malloc keeps by itself.
"""

import math

import numpy as np
import torch
from torch import Tensor

LARGE = 1 << 25  # bytes from which malloc gives a freed block back to the system
KEPT = 1 << 28  # bytes of free blocks that are kept here

_free: dict[int, list[np.ndarray]] = {}  # by size


class _Loan(np.ndarray):
    """A view of a block, held by the tensors that use it; the block is free when they are gone."""

    def __del__(self) -> None:
        block = self.base
        if isinstance(block, np.ndarray) and block.nbytes <= KEPT:
            if block.nbytes + sum(size * len(blocks) for size, blocks in _free.items()) > KEPT:
                _free.clear()
            _free.setdefault(block.nbytes, []).append(block)


def room(shape: tuple[int, ...], dtype: torch.dtype, *, zero: bool) -> Tensor:
    """An empty or zero tensor.

    >>> room((2, 3), torch.float32, zero=True)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return torch.zeros(shape, dtype=dtype) if zero else torch.empty(shape, dtype=dtype)
    try:
        block = _free[size].pop()
    except LookupError:
        block = np.empty(size, np.uint8)  # numpy asks for huge pages, which are cleared faster
    tensor = torch.from_numpy(block.view(_Loan)).view(dtype).view(shape)
    return tensor.zero_() if zero else tensor
