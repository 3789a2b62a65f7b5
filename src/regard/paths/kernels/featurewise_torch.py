"""Feature-wise attention in plain torch, for every device, in blocks of rows and features.

The torch version of the compiled loops, with the same memory bound: never M × N × D at once.
"""

import torch
from torch import Tensor

from .additive_torch import blocks
from .arguments import End, visible_cells, zero_hidden
from .custom_operator import sum_of_gradients


def distributions(
    query: Tensor, key: Tensor, scale: float, seen: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The attention distributions of a block, (B, M, N, D), and tanh' of their scores."""
    t = torch.tanh((query[:, :, None] + key[:, None]) / scale)
    slope = (1 - t) * (1 + t)
    if seen is None:
        return torch.softmax(scale * t, 2), slope
    hidden = (~seen & seen.any(-1, keepdim=True))[..., None]
    p = torch.softmax((scale * t).masked_fill(hidden, -torch.inf), 2)
    return torch.where(seen[..., None], p, 0), torch.where(seen[..., None], slope, 0)


def attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, low: End, high: End
) -> tuple[Tensor, Tensor]:
    """Context, and zeros instead of Σ_j eˢ, which only the compiled loops use."""
    key, value = zero_hidden(key, low, high), zero_hidden(value, low, high)
    out = torch.zeros_like(query)
    for rows, units in blocks(query, key):
        seen = visible_cells(low, high, key.shape[1], rows)
        p, _ = distributions(query[:, rows, units], key[..., units], scale, seen)
        out[:, rows, units] = (p * value[:, None, :, units]).sum(2)
    return out, torch.zeros_like(query)


def block_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float, seen: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    p, slope = distributions(query, key, scale, seen)
    v = value[:, None]
    out = (p * v).sum(2, keepdim=True)
    dv = p * grad[:, :, None]
    step = dv * (v - out) * slope
    return step.sum(2), step.sum(1), dv.sum(1)


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
    """Gradients of query, key and value."""
    key, value = zero_hidden(key, low, high), zero_hidden(value, low, high)
    dq, dk, dv = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    for rows, units in blocks(query, key):
        seen = visible_cells(low, high, key.shape[1], rows)
        dq[:, rows, units], block_dk, block_dv = block_backward(
            grad[:, rows, units],
            query[:, rows, units],
            key[..., units],
            value[..., units],
            scale,
            seen,
        )
        dk[..., units] += block_dk
        dv[..., units] += block_dv
    return dq, dk, dv


def attention_second(
    cotangents: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    low: End,
    high: End,
) -> tuple[Tensor, ...]:
    """The derivative of `attention_backward`: gradients of grad, query, key and value."""
    a, b, c = cotangents

    def parts(inputs):
        g, q, k, v = inputs
        k, v = zero_hidden(k, low, high), zero_hidden(v, low, high)
        for rows, units in blocks(query, key):
            seen = visible_cells(low, high, key.shape[1], rows)
            gradients = block_backward(
                g[:, rows, units], q[:, rows, units], k[..., units], v[..., units], scale, seen
            )
            yield gradients, (a[:, rows, units], b[..., units], c[..., units])

    return sum_of_gradients(parts, (grad, query, key, value))
