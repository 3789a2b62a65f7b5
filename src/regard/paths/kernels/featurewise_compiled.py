"""Feature-wise attention by the compiled loops, which need numba and a CPU."""

import math

import torch
from torch import Tensor

from .arguments import End
from .factors import Factors, factors, pad_lanes, unfactored, unpad
from .loops import featurewise as loops

LOG2_E = math.log2(math.e)
LARGEST_FACTORED = 20  # a score of 20·tanh from factors is still as exact as the textbook's


def prepared(query: Tensor, key: Tensor, scale: float, low: End, high: End) -> Factors:
    make = factors if scale <= LARGEST_FACTORED else unfactored
    if scale != 1:
        query, key = query / scale, key / scale
    return make(query, key, low, high)


def attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, low: End, high: End
) -> tuple[Tensor, Tensor]:
    """Context and Σ_j eˢ, both (B, M, D)."""
    f, v = prepared(query, key, scale, low, high), pad_lanes(value).numpy()
    out, mass = (query.new_zeros(f.e.shape) for _ in range(2))
    loops.attend(
        f.work, f.e, f.f, v, f.modes, f.low, f.high, scale * LOG2_E, out.numpy(), mass.numpy()
    )
    size = query.shape[2]
    return unpad(out, size), unpad(mass, size)


def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    low: End,
    high: End,
    out: Tensor,
    mass: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, from what `attention` returned."""
    f, v = prepared(query, key, scale, low, high), pad_lanes(value).numpy()
    share = torch.where(mass > 0, grad / mass, 0)
    dq, dk, dv = (query.new_zeros(a.shape) for a in (f.e, f.f, v))
    loops.gather(
        f.work,
        f.e,
        f.f,
        v,
        f.modes,
        f.low,
        f.high,
        scale * LOG2_E,
        pad_lanes(out).numpy(),
        pad_lanes(share).numpy(),
        dq.numpy(),
        dk.numpy(),
        dv.numpy(),
    )
    size = query.shape[2]
    return unpad(dq, size), unpad(dk, size), unpad(dv, size)
