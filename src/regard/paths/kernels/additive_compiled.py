"""Additive attention by the compiled loops, which need numba and a CPU."""

import numpy as np
import torch
from torch import Tensor

from .arguments import End
from .factors import Factors, factors, pad_lanes, unpad
from .loops import additive as loops
from .loops import additive_backward as deriving
from .loops.rows import QUERIES

BLOCK_CELLS = 1 << 22  # cells of the blocks of rows in which backward recomputes weights
SMALLEST = 16  # keys of a part at least
TASKS = 8  # parts that the keys are split into when there are fewer sequences than that


def scores(query: Tensor, key: Tensor, weight: Tensor, low: End, high: End):
    f = factors(query, key, low, high)
    fill = query.new_empty if low is None and high is None else query.new_zeros
    out = fill(*query.shape[:2], key.shape[1])
    loops.score(
        f.work, f.e, f.f, pad_lanes(weight).numpy(), f.modes, f.low, f.high, out.numpy().reshape(-1)
    )
    return out


def attention(
    query: Tensor, key: Tensor, weight: Tensor, value: Tensor, low: End, high: End, keep: bool
) -> tuple[Tensor, Tensor]:
    """Context, and the weights if they are kept, else an empty tensor."""
    batch, queries, _ = query.shape
    keys, size = value.shape[1:]
    f, w, v = factors(query, key, low, high), pad_lanes(weight).numpy(), pad_lanes(value).numpy()
    context = query.new_zeros(batch, queries, v.shape[2])
    fill = query.new_empty if low is None and high is None else query.new_zeros
    weights = fill(batch, queries, keys if keep else 0)
    inputs = f.e, f.f, w, f.modes, f.low, f.high, v
    rows = batch * queries
    if not keep and rows < TASKS and keys > loops.SPLIT:
        splits = -(-keys // loops.SPLIT)
        sums = np.zeros((rows, splits, v.shape[2]), v.dtype)
        stats = np.empty((rows, splits, 2), v.dtype)
        out = context.numpy().reshape(rows, -1)
        loops.attend_splits(f.work, *inputs, sums, stats, out)
    else:
        loops.attend(f.work, *inputs, context.numpy(), weights.numpy())
    return unpad(context, size), weights


def scores_backward(
    grad: Tensor, query: Tensor, key: Tensor, weight: Tensor, low: End, high: End
) -> tuple[Tensor, Tensor, Tensor]:
    f = factors(query, key, low, high)
    none = np.empty((*f.e.shape[:2], 0), f.e.dtype)
    sums = Sums(f, 0)
    slopes = grad.detach().contiguous().numpy()
    sums.add(f, slopes, slopes, none, 0)
    dq, dk, dw, _ = sums.gradients(weight)
    return dq, dk, dw


def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    value: Tensor,
    low: End,
    high: End,
    keep: bool,
    weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, weight and value, from the weights that `attention` returned."""
    f, w = factors(query, key, low, high), pad_lanes(weight).numpy()
    v, g = pad_lanes(value).numpy(), pad_lanes(grad).numpy()
    batch, queries, _ = f.e.shape
    keys = f.f.shape[1]
    sums = Sums(f, v.shape[2])
    rows = BLOCK_CELLS // max(1, batch * keys) // QUERIES * QUERIES
    rows = queries if keep else max(QUERIES, rows)
    for origin in range(0, queries, max(1, rows)):
        slopes = grad.new_empty(batch, min(rows, queries - origin), keys).numpy()
        p = weights.detach().numpy() if keep else grad.new_empty(slopes.shape).numpy()
        deriving.slope(f.work, f.e, f.f, w, f.modes, f.low, f.high, v, g, p, slopes, origin, keep)
        sums.add(f, p, slopes, g, origin)
    dq, dk, dw, dv = sums.gradients(weight)
    return dq, dk, dw, unpad(dv, value.shape[2])


class Sums:
    """Gradients being summed: dq and dk without their factor 4w, dw by sequence and part."""

    def __init__(self, f: Factors, value_size: int) -> None:
        batch, _, hidden = f.e.shape
        keys, like = f.f.shape[1], torch.from_numpy(f.e)
        self.parts = max(1, min(-(-TASKS // max(1, batch)), -(-keys // SMALLEST)))
        self.dq, self.dk = like.new_zeros(f.e.shape), like.new_zeros(f.f.shape)
        self.dv = like.new_zeros(batch, keys, value_size)
        self.dw = like.new_zeros(batch, self.parts, hidden, dtype=torch.float64)

    def add(
        self, f: Factors, weights: np.ndarray, slopes: np.ndarray, grad: np.ndarray, origin: int
    ) -> None:
        """Add the terms of rows of weights and slopes (B, R, N), from query `origin` on."""
        batch, queries, hidden = f.e.shape
        rows = slopes.shape[1]
        if self.parts == 1 and rows == queries:
            dq = self.dq.numpy()[:, None]
        else:
            dq = np.zeros((batch, self.parts, rows, hidden), f.e.dtype)
        deriving.gather(
            batch * rows * slopes.shape[2] * hidden,
            f.e,
            f.f,
            f.modes,
            f.low,
            f.high,
            weights,
            slopes,
            grad,
            dq,
            self.dk.numpy(),
            self.dw.numpy(),
            self.dv.numpy(),
            origin,
        )
        if dq.base is None:
            self.dq[:, origin : origin + rows] = torch.from_numpy(dq).sum(1)

    def gradients(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden = weight.shape[0]
        w = 4 * pad_lanes(weight)
        dq, dk = self.dq.mul_(w), self.dk.mul_(w)
        dw = self.dw.sum((0, 1))[:hidden].to(weight.dtype)
        return unpad(dq, hidden), unpad(dk, hidden), dw, self.dv
