"""Additive attention in plain torch, for every device, in blocks: never M × N × hidden at once.

The twin of the compiled loops, with the same memory bound. The second derivatives of both are here.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import softmax

from .intervals import hide, rows_of, visible_cells

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
    query: Tensor, key: Tensor, low: Tensor | None, high: Tensor | None, rows: slice, units: slice
) -> tuple[Tensor, Tensor]:
    """tanh(q + k) and its derivative, (B, rows, N, units), zero in cells that are not seen."""
    t = torch.tanh(query[:, rows, None, units] + key[:, None, :, units])
    slope = (1 - t) * (1 + t)
    seen = visible_cells(rows_of(low, rows), rows_of(high, rows), key.shape[1])
    if seen is not None:
        t, slope = (torch.where(seen[..., None], x, 0) for x in (t, slope))
    return t, slope


def scores(
    query: Tensor, key: Tensor, weight: Tensor, low: Tensor | None, high: Tensor | None
) -> Tensor:
    out = query.new_zeros(*query.shape[:2], key.shape[1])
    for rows, units in blocks(query, key):
        out[:, rows] += tanh_block(query, key, low, high, rows, units)[0] @ weight[units]
    return out


def scores_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    low: Tensor | None,
    high: Tensor | None,
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
    low: Tensor | None,
    high: Tensor | None,
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
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    value: Tensor,
    low: Tensor | None,
    high: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Context, and the weights if they are to be kept, else an empty tensor."""
    key, value = hide(key, low, high), hide(value, low, high)
    context = value.new_zeros(*query.shape[:2], value.shape[2])
    weights = query.new_zeros(*query.shape[:2], key.shape[1] if keep else 0)
    for rows in row_blocks(query, key):
        start, stop = rows_of(low, rows), rows_of(high, rows)
        seen = visible_cells(start, stop, key.shape[1])
        p = distributions(scores(query[:, rows], key, weight, start, stop), seen)
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
    weights: Tensor,
    low: Tensor | None,
    high: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, weight and value; weights as kept by `attention`, or empty."""
    key, value = hide(key, low, high), hide(value, low, high)
    dq, dk = torch.zeros_like(query), torch.zeros_like(key)
    dw, dv = torch.zeros_like(weight), torch.zeros_like(value)
    for rows in row_blocks(query, key):
        start, stop, q = rows_of(low, rows), rows_of(high, rows), query[:, rows]
        if weights.shape[2] == key.shape[1]:
            p = weights[:, rows]
        else:
            seen = visible_cells(start, stop, key.shape[1])
            p = distributions(scores(q, key, weight, start, stop), seen)
        slopes = softmax_slopes(p, grad[:, rows], value)
        dq[:, rows], rows_dk, rows_dw = scores_backward(slopes, q, key, weight, start, stop)
        dk += rows_dk
        dw += rows_dw
        dv += p.mT @ grad[:, rows]
    return dq, dk, dw, dv


def softmax_slopes(p: Tensor, grad: Tensor, value: Tensor) -> Tensor:
    """dL/dscores of context = p · value, given dL/dcontext."""
    step = grad @ value.mT
    return p * (step - (p * step).sum(-1, keepdim=True))


def fresh(tensor: Tensor, connected: bool) -> Tensor:
    """The tensor as one that nothing was computed from yet, to be differentiated with respect to.

    An alias, if the result is to be differentiated again: one input may depend on another.
    """
    if connected and tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_()


def attention_second(
    cotangents: tuple[Tensor, ...],
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    value: Tensor,
    low: Tensor | None,
    high: Tensor | None,
) -> tuple[Tensor, ...]:
    """The derivative of `attention_backward`: gradients of grad, query, key, weight and value.

    Each block of rows is differentiated by itself, through the operators of the scores.
    """
    ops = torch.ops.regard
    again = torch.is_grad_enabled()  # a third derivative was asked for
    with torch.enable_grad():
        inputs = tuple(fresh(tensor, again) for tensor in (grad, query, key, weight, value))
        totals = tuple(torch.zeros_like(tensor) for tensor in inputs)
        g, q, k, w, v = inputs
        k, v = hide(k, low, high), hide(v, low, high)
        for rows in row_blocks(query, key):
            start, stop = rows_of(low, rows), rows_of(high, rows)
            seen = visible_cells(start, stop, key.shape[1])
            p = distributions(ops.additive_scores(q[:, rows], k, w, start, stop), seen)
            slopes = softmax_slopes(p, g[:, rows], v)
            dq, dk, dw = ops.additive_scores_backward(slopes, q[:, rows], k, w, start, stop)
            outputs = dq, dk, dw, p.mT @ g[:, rows]
            a, *rest = cotangents
            found = torch.autograd.grad(
                outputs,
                inputs,
                (a[:, rows], *rest),
                create_graph=again,
                retain_graph=True,
                materialize_grads=True,
            )
            totals = tuple(total + part for total, part in zip(totals, found, strict=True))
    return totals
