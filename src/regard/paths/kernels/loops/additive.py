"""Additive attention forward: scores, softmax and weighted sum of one tile of queries at a time.

A score w · tanh(q + k) takes one division for up to four hidden units. Only the scores of a tile
exist, in a buffer of each part of the work.
"""

import math

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .elementary import reciprocal
from .factor import DIRECT, GROUPED, direct_cell, factored_cell
from .rows import (
    QUERIES,
    SENTINEL,
    bounds,
    copy_row,
    keys_per_block,
    scale_row,
    shared_interval,
    softmax_row,
    weigh1,
    weigh4,
)
from .vector import lanes, load, store, total, totals8, zero

PARTS = 64  # what the queries are dealt out to, whatever the number of threads
TILE = 16  # queries of which a part holds the scores at once
SPLIT = 1024  # keys per task where few queries see many keys


@inner
def pair(e, at, f, place, w, h, step):
    """Numerator and denominator of w₁/(1 + u₁) + w₂/(1 + u₂)."""
    p = load(e, at + h) * load(f, place + h) + 1.0
    q = load(e, at + h + step) * load(f, place + h + step) + 1.0
    return load(w, h) * q + load(w, h + step) * p, p * q


@inner
def group(e, at, f, place, w, h, step):
    """Σ w/(1 + u) over four vectors of hidden units, with one division."""
    a, b = pair(e, at, f, place, w, h, step)
    c, d = pair(e, at, f, place, w, h + 2 * step, step)
    return (a * d + c * b) * reciprocal(b * d)


@inner
def score_row(e, at, f, key, hidden, w, first, last, mode, out, row):
    """out[j] = w · tanh(q + k_j) for one query."""
    step = lanes(e)
    j = first
    if mode == GROUPED and last - first >= 8:  # eight keys at a time, and again the last ones
        grouped = hidden - hidden % (4 * step)
        sums = zero(w)
        for h in range(0, hidden, step):
            sums = sums + load(w, h)
        whole = total(sums)
        while last - j > 3:
            j = min(j, last - 8)
            k0 = key + j * hidden
            k1, k2, k3, k4 = k0 + hidden, k0 + 2 * hidden, k0 + 3 * hidden, k0 + 4 * hidden
            k5, k6, k7 = k4 + hidden, k4 + 2 * hidden, k4 + 3 * hidden
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero(w)  # Σ w/(1 + u), lane by lane
            for h in range(0, grouped, 4 * step):
                s0 = s0 + group(e, at, f, k0, w, h, step)
                s1 = s1 + group(e, at, f, k1, w, h, step)
                s2 = s2 + group(e, at, f, k2, w, h, step)
                s3 = s3 + group(e, at, f, k3, w, h, step)
                s4 = s4 + group(e, at, f, k4, w, h, step)
                s5 = s5 + group(e, at, f, k5, w, h, step)
                s6 = s6 + group(e, at, f, k6, w, h, step)
                s7 = s7 + group(e, at, f, k7, w, h, step)
            for h in range(grouped, hidden, step):
                x, y = load(e, at + h), load(w, h)
                s0 = s0 + y * reciprocal(x * load(f, k0 + h) + 1.0)
                s1 = s1 + y * reciprocal(x * load(f, k1 + h) + 1.0)
                s2 = s2 + y * reciprocal(x * load(f, k2 + h) + 1.0)
                s3 = s3 + y * reciprocal(x * load(f, k3 + h) + 1.0)
                s4 = s4 + y * reciprocal(x * load(f, k4 + h) + 1.0)
                s5 = s5 + y * reciprocal(x * load(f, k5 + h) + 1.0)
                s6 = s6 + y * reciprocal(x * load(f, k6 + h) + 1.0)
                s7 = s7 + y * reciprocal(x * load(f, k7 + h) + 1.0)
            store(out, row + j, whole - 2.0 * totals8(s0, s1, s2, s3, s4, s5, s6, s7))
            j += 8
    for single in range(j, last):
        s0 = zero(w)
        for h in range(0, hidden, step):
            x, y = load(e, at + h), load(f, key + single * hidden + h)
            if mode == DIRECT:
                s0 = s0 + load(w, h) * direct_cell(x, y)[0]
            else:
                s0 = s0 + load(w, h) * (1.0 - 2.0 * factored_cell(x, y)[0])
        store(out, row + single, total(s0))


@inner
def score_query(t, e, f, w, modes, low, high, cells):
    _, queries, hidden = e.shape
    keys = f.shape[1]
    b = t // queries
    first, last = bounds(low, high, b, t - b * queries, keys)
    score_row(
        e, t * hidden, f, b * keys * hidden, hidden, w, first, last, modes[b, 0], cells, t * keys
    )


@kernel("void(T[:,:,::1], T[:,:,::1], T[::1], i8[:,::1], i8[:,::1], i8[:,::1], T[::1])")
def score(e, f, w, modes, low, high, cells):
    """Scores, (B·M·N), of every query and the keys it sees; other cells stay as they are."""
    for t in prange(e.shape[0] * e.shape[1]):
        score_query(np.int64(t), e, f, w, modes, low, high, cells)


@inner
def weight_tile(b, start, stop, e, f, w, modes, low, high, rows, stride):
    """The attention distributions of a tile of queries, in rows; cells not seen are left alone."""
    _, queries, hidden = e.shape
    keys = f.shape[1]
    key, some = b * keys * hidden, keys_per_block(f, hidden)
    first, last, _, _ = shared_interval(low, high, b, start, stop, keys)
    for block in range(first, last, some):
        for i in range(start, stop):
            a, z = bounds(low, high, b, i, keys)
            a, z = max(a, block), min(z, block + some)
            at, row = (b * queries + i) * hidden, (i - start) * stride
            score_row(e, at, f, key, hidden, w, a, z, modes[b, 0], rows, row)
    for i in range(start, stop):
        a, z = bounds(low, high, b, i, keys)
        if a < z:
            row = (i - start) * stride
            scale_row(rows, row, a, z, 1.0 / softmax_row(rows, row, a, z)[1])


@inner
def weigh_tile(b, start, stop, weights, stride, value, low, high, out):
    """out[i] += Σ_j weights[i, j] · value[j] for a tile of queries, each over its own keys.

    The keys that four neighbours all see are loaded once for them. What a query may not see does
    not reach it, NaN included.
    """
    _, keys, size = value.shape
    base, some = b * keys * size, keys_per_block(value, size)
    first, last, _, _ = shared_interval(low, high, b, start, stop, keys)
    for block in range(first, last, some):
        end = min(block + some, last)
        for four in range(start, stop, QUERIES):
            row, at = (four - start) * stride, (b * out.shape[1] + four) * size
            rest = min(four + QUERIES, stop)
            _, _, a, z = shared_interval(low, high, b, four, rest, keys)
            a, z = max(a, block), min(z, end)
            if rest - four == QUERIES and a < z:
                weigh4(weights, row, stride, value, base, size, a, z, out, at)
            else:
                a = z = end
            for i in range(four, rest):
                x, y = bounds(low, high, b, i, keys)
                for c, d in ((max(x, block), min(y, a)), (max(x, z), min(y, end))):
                    if c < d:
                        weigh1(weights, row, value, base, size, c, d, out, at)
                row, at = row + stride, at + size


@inner
def keep_rows(b, start, stop, rows, stride, low, high, origin, weights):
    """Copy the rows of a tile to where all weights are kept, the first query there being origin."""
    _, queries, keys = weights.shape
    for i in range(start, stop):
        a, z = bounds(low, high, b, i, keys)
        to = (b * queries + i - origin) * keys
        copy_row(rows, (i - start) * stride, a, z, weights, to)


@inner
def attend_part(part, e, f, w, modes, low, high, value, out, weights):
    """Every PARTS-th tile of queries, from the part-th on: long and short rows mix."""
    batch, queries, _ = e.shape
    tiles = (queries + TILE - 1) // TILE
    if part >= batch * tiles:
        return
    stride = f.shape[1] + lanes(e)  # softmax_row writes behind the row
    rows = np.empty(min(TILE, queries) * stride, e.dtype)
    for t in range(part, batch * tiles, PARTS):
        b = t // tiles
        start = (t - b * tiles) * TILE
        stop = min(start + TILE, queries)
        weight_tile(b, start, stop, e, f, w, modes, low, high, rows, stride)
        weigh_tile(b, start, stop, rows, stride, value, low, high, out)
        if weights.size > 0:
            keep_rows(b, start, stop, rows, stride, low, high, 0, weights)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[:,::1], i8[:,::1], i8[:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1])"
)
def attend(e, f, w, modes, low, high, value, out, weights):
    """Fill out (B, M, Dv), zeros before, and weights (B, M, N) unless it is empty."""
    for part in prange(PARTS):
        attend_part(np.int64(part), e, f, w, modes, low, high, value, out, weights)


@inner
def attend_split(t, e, f, w, modes, low, high, value, sums, stats):
    """One query and one split of the keys: unnormalized sum, largest score and mass."""
    _, queries, hidden = e.shape
    _, keys, size = value.shape
    row, split = t // sums.shape[1], t % sums.shape[1]
    b = row // queries
    first, last = bounds(low, high, b, row - b * queries, keys)
    first, last = max(first, split * SPLIT), min(last, (split + 1) * SPLIT)
    stats[row, split, 1] = 0.0
    if first >= last:
        return
    rows = np.empty(SPLIT + lanes(e), e.dtype)
    zero = -split * SPLIT  # where key 0 would be
    score_row(
        e, row * hidden, f, b * keys * hidden, hidden, w, first, last, modes[b, 0], rows, zero
    )
    top, mass = softmax_row(rows, zero, first, last)
    stats[row, split, 0], stats[row, split, 1] = top, mass
    some = keys_per_block(value, size)
    for block in range(first, last, some):
        end = min(block + some, last)
        weigh1(rows, zero, value, b * keys * size, size, block, end, sums, t * size)


@inner
def merge_splits(row, sums, stats, out):
    """Join what the splits found, each scaled to the largest score of all."""
    top = SENTINEL
    for split in range(sums.shape[1]):
        if stats[row, split, 1] != 0.0:
            top = max(top, stats[row, split, 0])
    mass = 0.0
    for split in range(sums.shape[1]):
        if stats[row, split, 1] != 0.0:
            factor = math.exp(stats[row, split, 0] - top)
            mass += factor * stats[row, split, 1]
            for d in range(out.shape[1]):
                out[row, d] += factor * sums[row, split, d]
    if mass != 0.0:
        for d in range(out.shape[1]):
            out[row, d] /= mass


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[:,::1], i8[:,::1], i8[:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,::1])"
)
def attend_splits(e, f, w, modes, low, high, value, sums, stats, out):
    """Fill out (B·M, Dv), by way of sums (B·M, splits, Dv), both zeros before, and stats."""
    for t in prange(sums.shape[0] * sums.shape[1]):
        attend_split(np.int64(t), e, f, w, modes, low, high, value, sums, stats)
    for row in prange(out.shape[0]):
        merge_splits(np.int64(row), sums, stats, out)
