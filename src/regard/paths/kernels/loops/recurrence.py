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
from .product import ROWS, multiply
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
def ask(b, t, given, at, asked, weights, out, place):
    """Add to out what the keys of sentence b give to its gates, and note their weights."""
    key, f, tops, w, high, value = asked
    _, keys, hidden = key.shape
    size, kept = value.shape[2], (b * weights.shape[1] + t) * keys
    last = max(0, min(high[b], keys))
    weights[b, t, last:] = 0.0
    if last == 0:
        return
    e, row = np.empty(hidden, given.dtype), np.empty(keys + lanes(given), given.dtype)
    mode = query_factors(given, at, hidden, tops[b], e)
    k = key if mode == DIRECT else f
    score_row(e, 0, k, b * keys * hidden, hidden, w, 0, last, mode, row, 0)
    scale_row(row, 0, 0, last, 1.0 / softmax_row(row, 0, 0, last)[1])
    some = keys_per_block(value, size)
    for block in range(0, last, some):
        end = min(block + some, last)
        weigh1(row, 0, value, b * keys * size, size, block, end, out, place)
    copy_row(row, 0, 0, last, weights, kept)


@inner
def ask_nobody(b, t, given, at, asked, weights, out, place):
    """A recurrence without attention."""


@inner
def trace(b, t, kept, base, asked, weights, toward, slopes, place, sloped):
    """From the slopes of the gates those of the scores, `sloped`, and of the query."""
    key, f, tops, w, high, value = asked
    _, keys, hidden = key.shape
    size, at = value.shape[2], (b * weights.shape[1] + t) * keys
    last = max(0, min(high[b], keys))
    sloped[b, t, last:] = 0.0
    if last == 0:
        slopes[b, t, :hidden] = 0.0
        return
    e, row = np.empty(hidden, kept.dtype), np.empty(keys + lanes(kept), kept.dtype)
    dot_row(slopes, place, value, b * keys * size, size, 0, last, row, 0)
    add_row(toward, at, 0, last, row, 0)
    slope_row(weights, at, row, 0, 0, last, sloped, at)
    mode = query_factors(kept, base, hidden, tops[b], e)
    start = b * keys * hidden
    if mode == DIRECT:
        query_slope_direct(e, key, start, hidden, w, sloped, at, last, slopes, base)
    else:
        query_slope_factored(e, f, start, hidden, w, sloped, at, last, slopes, base)


@inner
def trace_nobody(b, t, kept, base, asked, weights, toward, slopes, place, sloped):
    """A recurrence without attention."""


def forth_with(attend):
    """The loop over the steps of a few sentences."""

    @inner
    def together(start, x, packed, bias, counts, reverse, states, cells, kept, asked, weights):
        batch, steps, wide = x.shape
        hidden, width = states.shape[2], kept.shape[2]
        stop, queries = min(start + ROWS, batch), width - 4 * hidden
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
                if queries > 0:
                    copy_row(given, at, 0, queries, kept, base)
                    inputs, place = kept, base + width - wide
                    copy_row(x, (b * steps + t) * wide, 0, wide, inputs, place)
                    attend(b, t, given, at, asked, weights, inputs, place)
                at, base = at + queries, base + queries
                if cells.size > 0:
                    lstm(
                        inputs, place, given, at, bias, hidden, cells, before, after, states,
                        kept, base,
                    )  # fmt: skip
                else:
                    gru(inputs, place, given, at, bias, hidden, states, before, after, kept, base)

    return together


def back_with(trace):
    """The loop back over the steps of a few sentences."""

    @inner
    def together(
        start, kept, packed, counts, reverse, states, cells, toward, grad, cell_grad, slopes,
        asked, weights, toward_weights, sloped,
    ):  # fmt: skip
        batch, steps, width = kept.shape
        hidden, depth = states.shape[2], packed.shape[1]
        stop, queries = min(start + ROWS, batch), width - 4 * hidden
        columns = packed.shape[0] * packed.shape[2]
        rows, taken = np.zeros(ROWS * depth, kept.dtype), np.empty(ROWS * columns, kept.dtype)
        longest = counts[start:stop].max()
        for s in range(steps):
            t = s if reverse else steps - 1 - s
            old, new = (t + 1, t) if reverse else (t, t + 1)
            for b in range(start, stop):
                add_row(toward, (b * steps + t) * hidden, 0, hidden, grad, b * hidden)
                if t >= counts[b]:
                    slopes[b, t] = 0.0
                    sloped[b, t] = 0.0
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
                    trace(b, t, kept, base, asked, weights, toward_weights, slopes, place, sloped)
                copy_row(slopes, base, 0, depth, rows, (b - start) * depth)
            if t < longest:
                multiply(rows, depth, packed, taken)
            for b in range(start, stop):
                if t < counts[b]:
                    add_row(taken, (b - start) * columns, 0, hidden, grad, b * hidden)

    return together


forth_asking, forth_asking_nobody = forth_with(ask), forth_with(ask_nobody)
back_asking, back_asking_nobody = back_with(trace), back_with(trace_nobody)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1])"
)
def forth(x, packed, bias, counts, reverse, states, cells, kept, weights):
    """From the first of the states (B, T + 1, H), or the last, fill the others.

    x: (B, T, gates), what the inputs give to the gates
    packed: what a state gives to its query and to the gates, see `multiply`
    counts: (B,), how many steps are real
    kept: (B, T, A + 4H), for the way back: the query, then see `cell`
    weights: (B, T, N)
    """
    for group in prange((x.shape[0] + ROWS - 1) // ROWS):
        forth_asking_nobody(
            np.int64(group) * ROWS, x, packed, bias, counts, reverse, states, cells, kept,
            (), weights,
        )  # fmt: skip


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,:,::1], T[::1], T[::1], i8[::1], T[:,:,::1])"
)
def attend_forth(
    x, packed, bias, counts, reverse, states, cells, kept, weights, key, f, tops, w, high, value
):
    """`forth` with attention to keys (B, N, A) and values (B, N, gates)."""
    asked = key, f, tops, w, high, value
    for group in prange((x.shape[0] + ROWS - 1) // ROWS):
        forth_asking(
            np.int64(group) * ROWS, x, packed, bias, counts, reverse, states, cells, kept,
            asked, weights,
        )  # fmt: skip


@kernel(
    "void(T[:,:,::1], T[:,:,::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,::1],"
    " T[:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1])"
)
def back(
    kept, packed, counts, reverse, states, cells, toward, grad, cell_grad, slopes,
    weights, toward_weights, sloped,
):  # fmt: skip
    """From grad and cell_grad (B, H), of the end, fill the slopes, and leave those of the start.

    toward: (B, T, H), the gradient that the states after each step have from elsewhere
    toward_weights: (B, T, N), the same of the weights
    slopes: (B, T, A + 4H), of the query and the gates; sloped: (B, T, N), of the scores
    """
    for group in prange((kept.shape[0] + ROWS - 1) // ROWS):
        back_asking_nobody(
            np.int64(group) * ROWS, kept, packed, counts, reverse, states, cells, toward, grad,
            cell_grad, slopes, (), weights, toward_weights, sloped,
        )  # fmt: skip


@kernel(
    "void(T[:,:,::1], T[:,:,::1], i8[::1], b1, T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,::1],"
    " T[:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1], T[::1],"
    " T[::1], i8[::1], T[:,:,::1])"
)
def attend_back(
    kept, packed, counts, reverse, states, cells, toward, grad, cell_grad, slopes,
    weights, toward_weights, sloped, key, f, tops, w, high, value,
):  # fmt: skip
    """`back` with attention."""
    asked = key, f, tops, w, high, value
    for group in prange((kept.shape[0] + ROWS - 1) // ROWS):
        back_asking(
            np.int64(group) * ROWS, kept, packed, counts, reverse, states, cells, toward, grad,
            cell_grad, slopes, asked, weights, toward_weights, sloped,
        )  # fmt: skip
