"""What the compiled loops read, made from tensors: padded and factored. Imports numba."""

from typing import NamedTuple

import numpy as np
from torch import Tensor
from torch.nn.functional import pad

from .intervals import interval_arrays
from .loops.factor import factor
from .loops.rows import QUERIES

LANES = 16  # sizes are padded to whole vectors


class Factors(NamedTuple):
    """What the loops read: exp(2q), exp(2k) or q, k themselves, and for each sequence which."""

    e: np.ndarray  # (B, M, hidden)
    f: np.ndarray  # (B, N, hidden)
    modes: np.ndarray  # (B, 3)
    low: np.ndarray  # (B or 1, M)
    high: np.ndarray  # (B or 1, M)

    @property
    def work(self) -> int:
        return self.e.size * self.f.shape[1]


def whole(tensor: Tensor) -> Tensor:
    """The tensor, contiguous, its last dimension padded with zeros to whole vectors."""
    missing = -tensor.shape[-1] % LANES or (LANES if tensor.shape[-1] == 0 else 0)
    return (pad(tensor, (0, missing)) if missing else tensor.contiguous()).detach()


def factors(query: Tensor, key: Tensor, low: Tensor | None, high: Tensor | None) -> Factors:
    q, k = whole(query).numpy(), whole(key).numpy()
    start, stop = interval_arrays(low, high, q.shape[1], k.shape[1])
    modes = np.zeros((q.shape[0], 3), np.int64)
    if q.shape[1] < QUERIES:  # each factor of a key would serve these few alone
        return Factors(q, k, modes, start, stop)
    e, f = np.empty_like(q), np.empty_like(k)
    factor(q.size + k.size, q, k, start, stop, modes, e, f)
    return Factors(e, f, modes, start, stop)
