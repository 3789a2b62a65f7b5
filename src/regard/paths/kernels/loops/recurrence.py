"""A recurrence over whole sentences, forth and back: a cell and, if there is, additive attention.

The state before a step asks; the values are what each key gives to the gates. Sentences do not
wait for each other, so a few of them go through all steps together: what they read stays in the
cache, and a matrix that is loaded serves all of them. A sentence that is over keeps its state.
The cell is an LSTM where there are `cells`, else a GRU. Importing this imports numba.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .additive import score_row
from .additive_step import query_factors, query_slope_direct, query_slope_factored
from .cell import gru, gru_slopes, lstm, lstm_slopes
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
from .vector import broadcast, lanes, load, store, zero

ROWS = 4  # sentences that go together


@inner
def multiply(rows, depth, packed, out):
    """out = rows · W for four rows of `depth`; W in blocks of columns, (blocks, depth, width)."""
    step, width = lanes(rows), packed.shape[2]
    columns = packed.shape[0] * width
    place = 0
    for column in range(0, columns, width):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero(rows)
        c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = zero(rows)
        for k in range(depth):
            w0, w1 = load(packed, place), load(packed, place + step)
            w2, w3 = load(packed, place + 2 * step), load(packed, place + 3 * step)
            x = broadcast(rows, k)
            a0, a1, a2, a3 = a0 + x * w0, a1 + x * w1, a2 + x * w2, a3 + x * w3
            x = broadcast(rows, depth + k)
            b0, b1, b2, b3 = b0 + x * w0, b1 + x * w1, b2 + x * w2, b3 + x * w3
            x = broadcast(rows, 2 * depth + k)
            c0, c1, c2, c3 = c0 + x * w0, c1 + x * w1, c2 + x * w2, c3 + x * w3
            x = broadcast(rows, 3 * depth + k)
            d0, d1, d2, d3 = d0 + x * w0, d1 + x * w1, d2 + x * w2, d3 + x * w3
            place += width
        write4(out, column, step, a0, a1, a2, a3)
        write4(out, columns + column, step, b0, b1, b2, b3)
        write4(out, 2 * columns + column, step, c0, c1, c2, c3)
        write4(out, 3 * columns + column, step, d0, d1, d2, d3)


@inner
def write4(out, at, step, a, b, c, d):
    store(out, at, a)
    store(out, at + step, b)
    store(out, at + 2 * step, c)
    store(out, at + 3 * step, d)


@inner
def attend_row(b, t, given, at, key, f, tops, w, high, value, weights, out, place):
    """Add to out what the keys of sentence b give to its gates, and note their weights."""
    _, keys, asked = key.shape
    size, kept = value.shape[2], (b * weights.shape[1] + t) * keys
    last = max(0, min(high[b], keys))
    weights[b, t, last:] = 0.0
    if last == 0:
        return
    e, row = np.empty(asked, given.dtype), np.empty(keys + lanes(given), given.dtype)
    mode = query_factors(given, at, asked, tops[b], e)
    k = key if mode == DIRECT else f
    score_row(e, 0, k, b * keys * asked, asked, w, 0, last, mode, row, 0)
    scale_row(row, 0, 0, last, 1.0 / softmax_row(row, 0, 0, last)[1])
    some = keys_per_block(value, size)
    for block in range(0, last, some):
        end = min(block + some, last)
        weigh1(row, 0, value, b * keys * size, size, block, end, out, place)
    copy_row(row, 0, 0, last, weights, kept)


@inner
def forth_together(
    start, x, packed, bias, counts, reverse, states, cells, kept,
    key, f, tops, w, high, value, weights,
):  # fmt: skip
    batch, steps, wide = x.shape
    hidden, asked, width = states.shape[2], key.shape[2], kept.shape[2]
    stop = min(start + ROWS, batch)
    columns = packed.shape[0] * packed.shape[2]
    rows, given = np.zeros(ROWS * hidden, x.dtype), np.empty(ROWS * columns, x.dtype)
    longest = counts[start:stop].max()
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        old, new = (t + 1, t) if reverse else (t, t + 1)
        if t < longest:
            for b in range(start, stop):
                place = (b * (steps + 1) + old) * hidden
                copy_row(states, place, 0, hidden, rows, (b - start) * hidden)
            multiply(rows, hidden, packed, given)
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
            if asked > 0:
                copy_row(given, at, 0, asked, kept, base)
                inputs, place = kept, base + width - wide
                copy_row(x, (b * steps + t) * wide, 0, wide, inputs, place)
                attend_row(b, t, given, at, key, f, tops, w, high, value, weights, inputs, place)
            at, base = at + asked, base + asked
            if cells.size > 0:
                lstm(inputs, place, given, at, bias, hidden, cells, before, after, states, kept,
                     base)  # fmt: skip
            else:
                gru(inputs, place, given, at, bias, hidden, states, before, after, kept, base)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[::1], T[::1], i8[::1], T[:,:,::1], T[:,:,::1])"
)
def forth(
    x, packed, bias, counts, reverse, states, cells, kept, key, f, tops, w, high, value, weights
):
    """From the first of the states (B, T + 1, H), or the last, fill the others.

    x: (B, T, gates), what the inputs give to the gates
    packed: what a state gives to its query and to the gates, see `multiply`
    kept: (B, T, A + 4H), for the way back: the query, then see `cell`
    weights: (B, T, N)
    """
    for group in prange((x.shape[0] + ROWS - 1) // ROWS):
        forth_together(
            np.int64(group) * ROWS, x, packed, bias, counts, reverse, states, cells, kept,
            key, f, tops, w, high, value, weights,
        )  # fmt: skip


@inner
def trace_row(
    b, t, kept, base, key, f, tops, w, high, value, weights, toward, slopes, place, sloped
):
    """From the slopes of the gates those of the scores, `sloped`, and of the query."""
    _, keys, asked = key.shape
    size, at = value.shape[2], (b * weights.shape[1] + t) * keys
    last = max(0, min(high[b], keys))
    sloped[b, t, last:] = 0.0
    if last == 0:
        slopes[b, t, :asked] = 0.0
        return
    e, row = np.empty(asked, kept.dtype), np.empty(keys + lanes(kept), kept.dtype)
    dot_row(slopes, place, value, b * keys * size, size, 0, last, row, 0)
    add_row(toward, at, 0, last, row, 0)
    slope_row(weights, at, row, 0, 0, last, sloped, at)
    mode = query_factors(kept, base, asked, tops[b], e)
    start = b * keys * asked
    if mode == DIRECT:
        query_slope_direct(e, key, start, asked, w, sloped, at, last, slopes, base)
    else:
        query_slope_factored(e, f, start, asked, w, sloped, at, last, slopes, base)


@inner
def back_together(
    start, kept, packed, counts, reverse, states, cells, toward, grad, cell_grad, slopes,
    key, f, tops, w, high, value, weights, toward_weights, sloped,
):  # fmt: skip
    batch, steps, width = kept.shape
    hidden, asked, depth = states.shape[2], key.shape[2], packed.shape[1]
    stop = min(start + ROWS, batch)
    columns = packed.shape[0] * packed.shape[2]
    rows, taken = np.zeros(ROWS * depth, kept.dtype), np.zeros(ROWS * columns, kept.dtype)
    longest = counts[start:stop].max()
    wide = depth - asked
    for s in range(steps):
        t = s if reverse else steps - 1 - s
        old, new = (t + 1, t) if reverse else (t, t + 1)
        for b in range(start, stop):
            if t >= counts[b]:
                slopes[b, t] = 0.0
                sloped[b, t] = 0.0
                rows[(b - start) * depth : (b - start + 1) * depth] = 0.0
                continue
            before, after = (b * (steps + 1) + old) * hidden, (b * (steps + 1) + new) * hidden
            base = (b * steps + t) * width
            if cells.size > 0:
                lstm_slopes(kept, base + asked, hidden, cells, before, after, grad, cell_grad,
                            b * hidden, slopes)  # fmt: skip
            else:
                gru_slopes(kept, base + asked, hidden, states, before, grad, b * hidden, slopes)
            if asked > 0:
                trace_row(b, t, kept, base, key, f, tops, w, high, value, weights, toward_weights,
                          slopes, base + width - wide, sloped)  # fmt: skip
            copy_row(slopes, base, 0, depth, rows, (b - start) * depth)
        if t < longest:
            multiply(rows, depth, packed, taken)
        for b in range(start, stop):
            if t < counts[b]:
                add_row(taken, (b - start) * columns, 0, hidden, grad, b * hidden)
            add_row(toward, (b * (steps + 1) + old) * hidden, 0, hidden, grad, b * hidden)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,::1],"
    " T[:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[::1], T[::1], i8[::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,:,::1])"
)
def back(
    kept, packed, counts, reverse, states, cells, toward, grad, cell_grad, slopes,
    key, f, tops, w, high, value, weights, toward_weights, sloped,
):  # fmt: skip
    """From grad and cell_grad (B, H), of the end, fill the slopes, and leave those of the start.

    toward, toward_weights: the gradients that states (B, T + 1, H) and weights have from elsewhere
    slopes: (B, T, A + 4H), of the query and the gates; sloped: (B, T, N), of the scores
    """
    for group in prange((kept.shape[0] + ROWS - 1) // ROWS):
        back_together(
            np.int64(group) * ROWS, kept, packed, counts, reverse, states, cells, toward, grad,
            cell_grad, slopes, key, f, tops, w, high, value, weights, toward_weights, sloped,
        )  # fmt: skip
