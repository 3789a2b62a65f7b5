"""What the compiled loops read, made from tensors: padded and factored. Imports numba."""

from typing import NamedTuple

import numpy as np
from torch import Tensor
from torch.nn.functional import pad

from .arguments import End, interval_arrays
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


def pad_lanes(tensor: Tensor) -> Tensor:
    """The tensor, contiguous, its last dimension padded with zeros to whole vectors."""
    size = tensor.shape[-1]
    missing = -size % LANES if size else LANES
    return (pad(tensor, (0, missing)) if missing else tensor.contiguous()).detach()


def unpad(tensor: Tensor, size: int) -> Tensor:
    """The tensor without what `pad_lanes` added to its last dimension."""
    return tensor if tensor.shape[-1] == size else tensor[..., :size].contiguous()


def unfactored(query: Tensor, key: Tensor, low: End, high: End) -> Factors:
    """Queries and keys themselves: the loops then compute each tanh from q + k."""
    q, k = pad_lanes(query).numpy(), pad_lanes(key).numpy()
    start, stop = interval_arrays(low, high, q.shape[1], k.shape[1])
    return Factors(q, k, np.zeros((q.shape[0], 3), np.int64), start, stop)


def factors(query: Tensor, key: Tensor, low: End, high: End) -> Factors:
    """exp(2q) and exp(2k), except where they would overflow or lose digits."""
    plain = unfactored(query, key, low, high)
    q, k, modes, start, stop = plain
    if q.shape[1] < QUERIES:  # a factor of a key would serve these few alone
        return plain
    # torch aligns memory to 64 bytes, numpy to 16, with which every load would touch two lines
    e, f = (query.new_empty(x.shape).numpy() for x in (q, k))
    factor(q.size + k.size, q, k, start, stop, modes, e, f)
    return Factors(e, f, modes, start, stop)
