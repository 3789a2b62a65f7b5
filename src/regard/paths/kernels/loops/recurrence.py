"""A recurrence over whole sentences, forward and backward: a cell, with or without attention.

The previous state is the query; the values are each key's part of the gates. Sentences do not
depend on each other, so a few of them go through all steps together: what they read stays in the
cache, and a matrix that is loaded serves all of them. A sentence that has ended keeps its state.
The cell is an LSTM where there are `cells`, else a GRU.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .additive import score_row
from .additive_step import query_factors, query_slope_direct, query_slope_factored
from .cell import ROWS, gru, gru_slopes, lstm, lstm_slopes, multiply
from .factor import DIRECT
from .rows import (
    add_row,
    copy_row,
    dot_row,
    keys_per_block,
    scale_row,
    slope_row,
    softmax_row,
    weigh1,
)
from .vector import lanes


@inner
def attend(b, t, projected, at, attended, weights, out, place):
    """Add to out the part of the keys of sentence b in its gates, and store their weights."""
    key, f, tops, w, high, value = attended
    _, keys, hidden = key.shape
    size, kept = value.shape[2], (b * weights.shape[1] + t) * keys
    last = max(0, min(high[b], keys))
    weights[b, t, last:] = 0.0
    if last == 0:
        return
    e, row = np.empty(hidden, projected.dtype), np.empty(keys + lanes(projected), projected.dtype)
    mode = query_factors(projected, at, hidden, tops[b], e)
    k = key if mode == DIRECT else f
    score_row(e, 0, k, b * keys * hidden, hidden, w, 0, last, mode, row, 0)
    scale_row(row, 0, 0, last, 1.0 / softmax_row(row, 0, 0, last)[1])
    some = keys_per_block(value, size)
    for block in range(0, last, some):
        end = min(block + some, last)
        weigh1(row, 0, value, b * keys * size, size, block, end, out, place)
    copy_row(row, 0, 0, last, weights, kept)


@inner
def attend_backward(b, t, kept, base, attended, weights, weight_grads, slopes, place, score_slopes):
    """From the slopes of the gates those of the scores and of the query."""
    key, f, tops, w, high, value = attended
    _, keys, hidden = key.shape
    size, at = value.shape[2], (b * weights.shape[1] + t) * keys
    last = max(0, min(high[b], keys))
    score_slopes[b, t, last:] = 0.0
    if last == 0:
        slopes[b, t, :hidden] = 0.0
        return
    e, row = np.empty(hidden, kept.dtype), np.empty(keys + lanes(kept), kept.dtype)
    dot_row(slopes, place, value, b * keys * size, size, 0, last, row, 0)
    add_row(weight_grads, at, 0, last, row, 0)
    slope_row(weights, at, row, 0, 0, last, score_slopes, at)
    mode = query_factors(kept, base, hidden, tops[b], e)
    start = b * keys * hidden
    if mode == DIRECT:
        query_slope_direct(e, key, start, hidden, w, score_slopes, at, last, slopes, base)
    else:
        query_slope_factored(e, f, start, hidden, w, score_slopes, at, last, slopes, base)


@inner
def forward_group(start, x, packed, bias, counts, reverse, states, cells, kept, weights, attended):
    """All steps of a few sentences, from number `start` on."""
    batch, steps, wide = x.shape
    hidden, width = states.shape[2], kept.shape[2]
    stop, queries = min(start + ROWS, batch), width - 4 * hidden
    columns = packed.shape[0] * packed.shape[2]
    rows, projected = np.zeros(ROWS * hidden, x.dtype), np.empty(ROWS * columns, x.dtype)
    longest = counts[start:stop].max()
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        old, new = (t + 1, t) if reverse else (t, t + 1)
        if t < longest:
            for b in range(start, stop):
                place = (b * (steps + 1) + old) * hidden
                copy_row(states, place, 0, hidden, rows, (b - start) * hidden)
            multiply(rows, hidden, packed, projected)
        for b in range(start, stop):
            if t >= counts[b]:
                states[b, new] = states[b, old]
                kept[b, t] = 0.0
                weights[b, t] = 0.0
                if cells.size > 0:
                    cells[b, new] = cells[b, old]
                continue
            before, after = (b * (steps + 1) + old) * hidden, (b * (steps + 1) + new) * hidden
            at, base = (b - start) * columns, (b * steps + t) * width
            inputs, place = x, (b * steps + t) * wide
            if queries > 0:
                copy_row(projected, at, 0, queries, kept, base)
                inputs, place = kept, base + width - wide
                copy_row(x, (b * steps + t) * wide, 0, wide, inputs, place)
                attend(b, t, projected, at, attended, weights, inputs, place)
            at, base = at + queries, base + queries
            if cells.size > 0:
                lstm(
                    inputs, place, projected, at, bias, hidden, cells, before, after, states,
                    kept, base,
                )  # fmt: skip
            else:
                gru(inputs, place, projected, at, bias, hidden, states, before, after, kept, base)


@inner
def backward_group(
    start, kept, packed, counts, reverse, states, cells, state_grads, grad, cell_grad, slopes,
    weights, weight_grads, score_slopes, attended,
):  # fmt: skip
    """All steps of a few sentences, from number `start` on, from the last step to the first."""
    batch, steps, width = kept.shape
    hidden, depth = states.shape[2], packed.shape[1]
    stop, queries = min(start + ROWS, batch), width - 4 * hidden
    columns = packed.shape[0] * packed.shape[2]
    rows, products = np.zeros(ROWS * depth, kept.dtype), np.empty(ROWS * columns, kept.dtype)
    longest = counts[start:stop].max()
    for s in range(steps):
        t = s if reverse else steps - 1 - s
        old, new = (t + 1, t) if reverse else (t, t + 1)
        for b in range(start, stop):
            add_row(state_grads, (b * steps + t) * hidden, 0, hidden, grad, b * hidden)
            if t >= counts[b]:
                slopes[b, t] = 0.0
                score_slopes[b, t] = 0.0
                continue
            before, after = (b * (steps + 1) + old) * hidden, (b * (steps + 1) + new) * hidden
            base, row = (b * steps + t) * width, b * hidden
            if cells.size > 0:
                lstm_slopes(
                    kept, base + queries, hidden, cells, before, after, grad, cell_grad, row,
                    slopes,
                )  # fmt: skip
            else:
                gru_slopes(kept, base + queries, hidden, states, before, grad, row, slopes)
            if queries > 0:
                place = base + width - (depth - queries)
                attend_backward(
                    b, t, kept, base, attended, weights, weight_grads, slopes, place, score_slopes
                )
            copy_row(slopes, base, 0, depth, rows, (b - start) * depth)
        if t < longest:
            multiply(rows, depth, packed, products)
        for b in range(start, stop):
            if t < counts[b]:
                add_row(products, (b - start) * columns, 0, hidden, grad, b * hidden)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,:,::1], T[::1], T[::1], i8[::1], T[:,:,::1])"
)
def forward(
    x, packed, bias, counts, reverse, states, cells, kept, weights, key, f, tops, w, high, value
):
    """From the first of the states (B, T + 1, H), or the last, fill the others.

    x: (B, T, gates), the inputs' part of the gates
    packed: projects a state to its query and to its part of the gates, see `multiply`
    counts: (B,), the number of real steps
    kept: (B, T, A + 4H), for backward: the query, then see `cell`
    weights: (B, T, N)
    key, f, tops, w, high, value: as in `additive_step`; (B, 0, 0) without attention
    """
    attended = key, f, tops, w, high, value
    for group in prange((x.shape[0] + ROWS - 1) // ROWS):
        forward_group(
            np.int64(group) * ROWS, x, packed, bias, counts, reverse, states, cells, kept,
            weights, attended,
        )  # fmt: skip


@kernel(
    "void(T[:,:,::1], T[:,:,::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,::1],"
    " T[:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[::1],"
    " T[::1], i8[::1], T[:,:,::1])"
)
def backward(
    kept, packed, counts, reverse, states, cells, state_grads, grad, cell_grad, slopes,
    weights, weight_grads, score_slopes, key, f, tops, w, high, value,
):  # fmt: skip
    """Fill the slopes; turn grad and cell_grad (B, H) of the last state into those of the first.

    state_grads: (B, T, H), of the states after each step, apart from the recurrence
    weight_grads: (B, T, N), of the attention weights
    slopes: (B, T, A + 4H), of the query and the gates; score_slopes: (B, T, N)
    """
    attended = key, f, tops, w, high, value
    for group in prange((kept.shape[0] + ROWS - 1) // ROWS):
        backward_group(
            np.int64(group) * ROWS, kept, packed, counts, reverse, states, cells, state_grads,
            grad, cell_grad, slopes, weights, weight_grads, score_slopes, attended,
        )  # fmt: skip
