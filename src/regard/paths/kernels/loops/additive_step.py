"""A step of additive attention: a few queries, and keys whose factors are given.

A decoder attends to the same keys at every step.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .additive import score_row
from .elementary import exponential
from .factor import DIRECT, direct_cell, factored_cell, mode_for, reach
from .rows import copy_row, dot_row, keys_per_block, scale_row, slope_row, softmax_row, weigh1
from .vector import broadcast, lanes, load, store, zero


@inner
def query_factors(query, at, hidden, top, e):
    """Fill e with the factors of one query, or the query itself; return how to compute tanh."""
    mode = mode_for(query, reach(query, at, at + hidden) + top)
    for h in range(0, hidden, lanes(query)):
        x = load(query, at + h)
        store(e, h, x if mode == DIRECT else exponential(x + x))
    return mode


@inner
def forward_sequence(b, query, key, f, tops, w, high, value, out, weights):
    _, queries, hidden = query.shape
    _, keys, size = value.shape
    last = max(0, min(high[b], keys))
    out[b] = 0.0
    if weights.size > 0:
        weights[b, :, last:] = 0.0
    if last == 0:
        return
    e, row = np.empty(hidden, query.dtype), np.empty(keys + lanes(query), query.dtype)
    some = keys_per_block(value, size)
    for i in range(b * queries, (b + 1) * queries):
        mode = query_factors(query, i * hidden, hidden, tops[b], e)
        k = key if mode == DIRECT else f
        score_row(e, 0, k, b * keys * hidden, hidden, w, 0, last, mode, row, 0)
        scale_row(row, 0, 0, last, 1.0 / softmax_row(row, 0, 0, last)[1])
        for block in range(0, last, some):
            end = min(block + some, last)
            weigh1(row, 0, value, b * keys * size, size, block, end, out, i * size)
        if weights.size > 0:
            copy_row(row, 0, 0, last, weights, i * keys)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[:,:,::1], T[::1], T[::1], i8[::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1])"
)
def forward(query, key, f, tops, w, high, value, out, weights):
    """Fill out (B, M, Dv), and weights (B, M, N) unless it is empty.

    f: exp(2·key); tops: the largest |key| of each sequence; high: the number of its keys
    """
    for b in prange(query.shape[0]):
        forward_sequence(np.int64(b), query, key, f, tops, w, high, value, out, weights)


def query_slope_with(cell):
    """The loop for the gradient of a query, for a kind of tanh."""

    @inner
    def query_slope(e, k, at, hidden, w, slopes, row, last, dq, to):
        """dq = 4w ∘ Σ_j slopes[j] · a quarter of the derivative of tanh."""
        step = lanes(e)
        fours = hidden - hidden % (4 * step)
        for h in range(0, fours, 4 * step):  # neighbours in memory, as in `weigh1`
            x0, x1 = load(e, h), load(e, h + step)
            x2, x3 = load(e, h + 2 * step), load(e, h + 3 * step)
            s0 = s1 = s2 = s3 = zero(e)
            for j in range(last):
                g, place = broadcast(slopes, row + j), at + j * hidden + h
                s0 = s0 + g * cell(x0, load(k, place))[1]
                s1 = s1 + g * cell(x1, load(k, place + step))[1]
                s2 = s2 + g * cell(x2, load(k, place + 2 * step))[1]
                s3 = s3 + g * cell(x3, load(k, place + 3 * step))[1]
            store(dq, to + h, s0 * load(w, h) * 4.0)
            store(dq, to + h + step, s1 * load(w, h + step) * 4.0)
            store(dq, to + h + 2 * step, s2 * load(w, h + 2 * step) * 4.0)
            store(dq, to + h + 3 * step, s3 * load(w, h + 3 * step) * 4.0)
        for h in range(fours, hidden, step):
            sums = zero(e)
            for j in range(last):
                slope = cell(load(e, h), load(k, at + j * hidden + h))[1]
                sums = sums + broadcast(slopes, row + j) * slope
            store(dq, to + h, sums * load(w, h) * 4.0)

    return query_slope


query_slope_factored = query_slope_with(factored_cell)
query_slope_direct = query_slope_with(direct_cell)


@inner
def backward_sequence(b, query, key, f, tops, w, high, value, grad, weights, slopes, dq):
    _, queries, hidden = query.shape
    _, keys, size = value.shape
    last = max(0, min(high[b], keys))
    slopes[b, :, last:] = 0.0
    if last == 0:
        dq[b] = 0.0
        return
    e, row = np.empty(hidden, query.dtype), np.empty(keys + lanes(query), query.dtype)
    for i in range(b * queries, (b + 1) * queries):
        dot_row(grad, i * size, value, b * keys * size, size, 0, last, row, 0)
        slope_row(weights, i * keys, row, 0, 0, last, slopes, i * keys)
        mode = query_factors(query, i * hidden, hidden, tops[b], e)
        at, to = b * keys * hidden, i * hidden
        if mode == DIRECT:
            query_slope_direct(e, key, at, hidden, w, slopes, i * keys, last, dq, to)
        else:
            query_slope_factored(e, f, at, hidden, w, slopes, i * keys, last, dq, to)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[:,:,::1], T[::1], T[::1], i8[::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,:,::1])"
)
def backward(query, key, f, tops, w, high, value, grad, weights, slopes, dq):
    """From the gradient of the context (B, M, Dv) fill that of the scores and of the queries."""
    for b in prange(query.shape[0]):
        backward_sequence(
            np.int64(b), query, key, f, tops, w, high, value, grad, weights, slopes, dq
        )


@inner
def prepare_sequence(b, key, high, tops, f):
    _, keys, hidden = key.shape
    start = b * keys * hidden
    stop = start + max(0, min(high[b], keys)) * hidden
    tops[b] = reach(key, start, stop)
    for place in range(start, stop, lanes(key)):
        x = load(key, place)
        store(f, place, exponential(x + x))


@kernel("void(T[:,:,::1], i8[::1], T[::1], T[:,:,::1])")
def prepare(key, high, tops, f):
    """Fill tops (B,), the largest |key| of a sequence, and f (B, N, hidden), its factors."""
    for b in prange(key.shape[0]):
        prepare_sequence(np.int64(b), key, high, tops, f)
