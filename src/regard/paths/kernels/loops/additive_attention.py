"""Additive attention forward: scores, softmax and weighted sum of four queries at a time.

Only four rows of scores exist at once, in a buffer of each part of the work. Importing this imports
numba.
"""

import math

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .additive import score_row
from .rows import (
    KEYS,
    QUERIES,
    SENTINEL,
    bounds,
    scale_row,
    softmax_row,
    tile_interval,
    weigh1,
    weigh4,
)
from .vector import lanes

PARTS = 64  # what the queries are dealt out to, whatever the number of threads
SPLIT = 1024  # keys per task where few queries see many keys


@inner
def weigh_tile(b, start, stop, weights, stride, value, low, high, out):
    """out[i] += Σ_j weights[i, j] · value[j] for up to four queries, each over its own keys.

    The keys that all four see are shared; a NaN that one of them may not see does not reach it.
    """
    _, keys, size = value.shape
    base = b * keys * size
    at = (b * out.shape[1] + start) * size
    first, last, all_first, all_last = tile_interval(low, high, b, start, stop, keys)
    for block in range(first, last, KEYS):
        end = min(block + KEYS, last)
        a, z = max(block, all_first), min(end, all_last)
        if stop - start < QUERIES or a >= z:
            a = z = end
        else:
            weigh4(weights, 0, stride, value, base, size, a, z, out, at)
        for i in range(start, stop):
            x, y = bounds(low, high, b, i, keys)
            row, place = (i - start) * stride, at + (i - start) * size
            weigh1(weights, row, value, base, size, max(x, block), min(y, a), out, place)
            weigh1(weights, row, value, base, size, max(x, z), min(y, end), out, place)


@inner
def weight_tile(b, start, stop, e, f, w, modes, low, high, rows, stride):
    """The attention distributions of up to four queries, in rows; cells not seen are left alone."""
    _, queries, hidden = e.shape
    keys = f.shape[1]
    first, last, _, _ = tile_interval(low, high, b, start, stop, keys)
    for block in range(first, last, KEYS):
        for i in range(start, stop):
            a, z = bounds(low, high, b, i, keys)
            score_row(
                e,
                (b * queries + i) * hidden,
                f,
                b * keys * hidden,
                hidden,
                w,
                max(a, block),
                min(z, block + KEYS),
                modes[b, 0],
                rows,
                (i - start) * stride,
            )
    for i in range(start, stop):
        a, z = bounds(low, high, b, i, keys)
        if a < z:
            row = (i - start) * stride
            scale_row(rows, row, a, z, 1.0 / softmax_row(rows, row, a, z)[1])


@inner
def attend_part(part, e, f, w, modes, low, high, value, out, weights):
    """Every PARTS-th tile of queries, from the part-th on: long and short rows mix."""
    batch, queries, _ = e.shape
    keys = f.shape[1]
    stride = keys + lanes(e)  # softmax_row writes behind the row
    rows = np.empty(QUERIES * stride, e.dtype)
    tiles = (queries + QUERIES - 1) // QUERIES
    for t in range(part, batch * tiles, PARTS):
        b = t // tiles
        start = (t - b * tiles) * QUERIES
        stop = min(start + QUERIES, queries)
        weight_tile(b, start, stop, e, f, w, modes, low, high, rows, stride)
        weigh_tile(b, start, stop, rows, stride, value, low, high, out)
        if weights.size > 0:
            for i in range(start, stop):
                a, z = bounds(low, high, b, i, keys)
                for j in range(a, z):
                    weights[b, i, j] = rows[(i - start) * stride + j]


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
    for block in range(first, last, KEYS):
        end = min(block + KEYS, last)
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
