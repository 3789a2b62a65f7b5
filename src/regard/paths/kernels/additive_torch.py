"""Additive attention in plain torch, for every device, in blocks: never M × N × hidden at once.

The torch version of the compiled loops, with the same memory bound, and the second derivatives of
both.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import softmax

from .arguments import End, visible_cells, zero_hidden
from .custom_operator import sum_of_gradients

CELLS = 1 << 20  # elements of tanh held at once


def blocks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Blocks of query rows and hidden units: CELLS evaluations of tanh, or one row and unit."""
    (batch, queries, hidden), keys = query.shape, key.shape[1]
    rows = max(1, min(queries, CELLS // max(1, batch * keys * hidden)))
    units = max(1, min(hidden, CELLS // max(1, batch * keys * rows)))
    for start in range(0, queries, rows):
        for unit in range(0, hidden, units):
            yield slice(start, start + rows), slice(unit, unit + units)


def tanh_block(
    query: Tensor, key: Tensor, low: End, high: End, rows: slice, units: slice
) -> tuple[Tensor, Tensor]:
    """tanh(q + k) and its derivative, (B, rows, N, units), zero in cells that are not seen."""
    t = torch.tanh(query[:, rows, None, units] + key[:, None, :, units])
    slope = (1 - t) * (1 + t)
    seen = visible_cells(low, high, key.shape[1], rows)
    if seen is not None:
        t, slope = (torch.where(seen[..., None], x, 0) for x in (t, slope))
    return t, slope


def scores(query: Tensor, key: Tensor, weight: Tensor, low: End, high: End) -> Tensor:
    out = query.new_zeros(*query.shape[:2], key.shape[1])
    for rows, units in blocks(query, key):
        out[:, rows] += tanh_block(query, key, low, high, rows, units)[0] @ weight[units]
    return out


def scores_backward(
    grad: Tensor, query: Tensor, key: Tensor, weight: Tensor, low: End, high: End
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dw = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(weight)
    for rows, units in blocks(query, key):
        t, slope = tanh_block(query, key, low, high, rows, units)
        g = grad[:, rows, :, None]
        dw[units] += (g * t).sum((0, 1, 2))
        slope = g * slope * weight[units]
        dq[:, rows, units] = slope.sum(2)
        dk[..., units] += slope.sum(1)
    return dq, dk, dw


def scores_second(
    cotangents: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    low: End,
    high: End,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The derivative of `scores_backward`: gradients of grad, query, key and weight.

    With cotangents a, b, c of dq, dk, dw it differentiates
    Σ_ijh g_ij ((a_ih + b_jh) w_h (1 − t²) + c_h t), where t = tanh(q_ih + k_jh).
    """
    a, b, c = cotangents
    dg, dq = torch.zeros_like(grad), torch.zeros_like(query)
    dk, dw = torch.zeros_like(key), torch.zeros_like(weight)
    for rows, units in blocks(query, key):
        t, slope = tanh_block(query, key, low, high, rows, units)
        g = grad[:, rows, :, None]
        ab = a[:, rows, None, units] + b[:, None, :, units]
        dg[:, rows] += (ab * slope) @ weight[units] + t @ c[units]
        dw[units] += (g * ab * slope).sum((0, 1, 2))
        inner = g * slope * (c[units] - 2 * t * ab * weight[units])
        dq[:, rows, units] = inner.sum(2)
        dk[..., units] += inner.sum(1)
    return dg, dq, dk, dw


def row_blocks(query: Tensor, key: Tensor) -> Iterator[slice]:
    batch, queries, keys = *query.shape[:2], key.shape[1]
    rows = max(1, CELLS // max(1, batch * keys))
    return (slice(start, start + rows) for start in range(0, queries, rows))


def distributions(scores: Tensor, seen: Tensor | None) -> Tensor:
    """Softmax over the seen cells; zeros, with zero gradients, where none is seen."""
    if seen is None:
        return softmax(scores, -1)
    hidden = ~seen & seen.any(-1, keepdim=True)
    return torch.where(seen, softmax(scores.masked_fill(hidden, -torch.inf), -1), 0)


def attention(
    query: Tensor, key: Tensor, weight: Tensor, value: Tensor, low: End, high: End, keep: bool
) -> tuple[Tensor, Tensor]:
    """Context, and the weights if they are kept, else an empty tensor."""
    key, value = zero_hidden(key, low, high), zero_hidden(value, low, high)
    context = value.new_zeros(*query.shape[:2], value.shape[2])
    weights = query.new_zeros(*query.shape[:2], key.shape[1] if keep else 0)
    for rows in row_blocks(query, key):
        ends = rows_of(low, rows), rows_of(high, rows)
        p = distributions(
            scores(query[:, rows], key, weight, *ends), visible_cells(*ends, key.shape[1])
        )
        context[:, rows] = p @ value
        if keep:
            weights[:, rows] = p
    return context, weights


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
    key, value = zero_hidden(key, low, high), zero_hidden(value, low, high)
    dq, dk = torch.zeros_like(query), torch.zeros_like(key)
    dw, dv = torch.zeros_like(weight), torch.zeros_like(value)
    for rows in row_blocks(query, key):
        ends, q = (rows_of(low, rows), rows_of(high, rows)), query[:, rows]
        if keep:
            p = weights[:, rows]
        else:
            seen = visible_cells(*ends, key.shape[1])
            p = distributions(scores(q, key, weight, *ends), seen)
        slopes = softmax_slopes(p, grad[:, rows], value)
        dq[:, rows], rows_dk, rows_dw = scores_backward(slopes, q, key, weight, *ends)
        dk += rows_dk
        dw += rows_dw
        dv += p.mT @ grad[:, rows]
    return dq, dk, dw, dv


def rows_of(end: End, rows: slice) -> End:
    return None if end is None else end[:, rows]


def softmax_slopes(p: Tensor, grad: Tensor, value: Tensor) -> Tensor:
    """dL/dscores of context = p · value, given dL/dcontext."""
    step = grad @ value.mT
    return p * (step - (p * step).sum(-1, keepdim=True))


def attention_second(
    cotangents: tuple[Tensor, ...],
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    value: Tensor,
    low: End,
    high: End,
    keep: bool,
) -> tuple[Tensor, ...]:
    """The derivative of `attention_backward`: gradients of grad, query, key, weight and value.

    Each block of rows is differentiated by itself, through the operators of the scores.
    """
    ops = torch.ops.regard
    cotangent_q, *others = cotangents

    def blocks(inputs):
        g, q, k, w, v = inputs
        k, v = zero_hidden(k, low, high), zero_hidden(v, low, high)
        for rows in row_blocks(query, key):
            ends = rows_of(low, rows), rows_of(high, rows)
            seen = visible_cells(*ends, key.shape[1])
            p = distributions(ops.additive_scores(q[:, rows], k, w, *ends), seen)
            slopes = softmax_slopes(p, g[:, rows], v)
            gradients = ops.additive_scores_backward(slopes, q[:, rows], k, w, *ends)
            yield (*gradients, p.mT @ g[:, rows]), (cotangent_q[:, rows], *others)

    return sum_of_gradients(blocks, (grad, query, key, weight, value))
