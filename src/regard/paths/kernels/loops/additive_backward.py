"""Additive attention backward, in two steps over a block of query rows.

First the slopes G = dL/dscores of each row; then, with every task owning a range of keys,
dq_i = 4w ∘ Σ_j G_ij ur², dk_j = 4w ∘ Σ_i G_ij ur², dw = Σ_ij G_ij (1 − 2r), dv_j = Σ_i P_ij dout_i.
The ranges do not depend on the number of threads, so neither do the sums. Importing this imports
numba.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .additive_attention import PARTS, weight_tile
from .factor import DIRECT, direct_cell, factored_cell
from .rows import KEYS, QUERIES, bounds, dot_row, spread1, spread4, tile_interval
from .vector import add_to, broadcast, lanes, load, store, total, zero


@inner
def slope_part(part, origin, given, e, f, w, modes, low, high, value, grad, weights, slopes):
    """Weights, unless given, and slopes of every PARTS-th tile of the rows from origin on."""
    batch, block_rows, keys = slopes.shape
    size = value.shape[2]
    stride = keys + lanes(e)
    rows = np.empty(QUERIES * stride, e.dtype)
    tiles = (block_rows + QUERIES - 1) // QUERIES
    for t in range(part, batch * tiles, PARTS):
        b = t // tiles
        start = origin + (t - b * tiles) * QUERIES
        stop = min(start + QUERIES, origin + block_rows)
        if not given:
            weight_tile(b, start, stop, e, f, w, modes, low, high, rows, stride)
            for i in range(start, stop):
                a, z = bounds(low, high, b, i, keys)
                for j in range(a, z):
                    weights[b, i - origin, j] = rows[(i - start) * stride + j]
        first, last, _, _ = tile_interval(low, high, b, start, stop, keys)
        for block in range(first, last, KEYS):
            for i in range(start, stop):
                a, z = bounds(low, high, b, i, keys)
                dot_row(
                    grad,
                    (b * grad.shape[1] + i) * size,
                    value,
                    b * keys * size,
                    size,
                    max(a, block),
                    min(z, block + KEYS),
                    rows,
                    (i - start) * stride,
                )
        for i in range(start, stop):
            a, z = bounds(low, high, b, i, keys)
            row = (i - start) * stride
            mean = total(zero(rows))
            for j in range(a, z):
                mean += weights[b, i - origin, j] * rows[row + j]
            for j in range(a, z):
                slopes[b, i - origin, j] = weights[b, i - origin, j] * (rows[row + j] - mean)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[:,::1], i8[:,::1], i8[:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,:,::1], i8, b1)"
)
def slope(e, f, w, modes, low, high, value, grad, weights, slopes, origin, given):
    """Fill slopes (B, R, N), and weights unless given, of the R query rows from origin on."""
    for part in prange(PARTS):
        slope_part(
            np.int64(part), origin, given, e, f, w, modes, low, high, value, grad, weights, slopes
        )


def gather_with(cell):
    """The loop that adds up gradients over rows and a range of keys, for a kind of tanh."""

    @inner
    def gather1(e, at, f, key, hidden, g, row, first, last, dq, to, dk, dw):
        for h in range(0, hidden, lanes(e)):
            x = load(e, at + h)
            sum_q = sum_w = zero(e)
            for j in range(first, last):
                place = key + j * hidden + h
                t, s = cell(x, load(f, place))
                slope = broadcast(g, row + j)
                sum_q = sum_q + slope * s
                sum_w = sum_w + slope * t
                add_to(dk, place, slope * s)
            add_to(dq, to + h, sum_q)
            add_to(dw, h, sum_w)

    @inner
    def gather4(e, at, f, key, hidden, g, row, stride, first, last, dq, to, dk, dw):
        for h in range(0, hidden, lanes(e)):
            x0, x1 = load(e, at + h), load(e, at + hidden + h)
            x2, x3 = load(e, at + 2 * hidden + h), load(e, at + 3 * hidden + h)
            q0 = q1 = q2 = q3 = sum_w = zero(e)
            for j in range(first, last):
                place = key + j * hidden + h
                y, sum_k = load(f, place), load(dk, place)
                slope = broadcast(g, row + j)
                t, s = cell(x0, y)
                q0, sum_k, sum_w = q0 + slope * s, sum_k + slope * s, sum_w + slope * t
                slope = broadcast(g, row + stride + j)
                t, s = cell(x1, y)
                q1, sum_k, sum_w = q1 + slope * s, sum_k + slope * s, sum_w + slope * t
                slope = broadcast(g, row + 2 * stride + j)
                t, s = cell(x2, y)
                q2, sum_k, sum_w = q2 + slope * s, sum_k + slope * s, sum_w + slope * t
                slope = broadcast(g, row + 3 * stride + j)
                t, s = cell(x3, y)
                q3, sum_k, sum_w = q3 + slope * s, sum_k + slope * s, sum_w + slope * t
                store(dk, place, sum_k)
            add_to(dq, to + h, q0)
            add_to(dq, to + hidden + h, q1)
            add_to(dq, to + 2 * hidden + h, q2)
            add_to(dq, to + 3 * hidden + h, q3)
            add_to(dw, h, sum_w)

    @inner
    def gather_range(b, part, origin, e, f, low, high, weights, slopes, grad, dq, dk, dw, dv):
        _, rows, keys = slopes.shape
        hidden, size = e.shape[2], grad.shape[2]
        parts = dq.shape[1]
        span = (keys + parts - 1) // parts
        begin, finish = part * span, min((part + 1) * span, keys)
        key, val = b * keys * hidden, b * keys * size
        tile_dw = np.empty(hidden, e.dtype)
        for start in range(0, rows, QUERIES):
            stop = min(start + QUERIES, rows)
            query = b * e.shape[1] + origin + start
            at, out = query * hidden, query * size
            to = ((b * parts + part) * rows + start) * hidden
            row = (b * rows + start) * keys
            first, last, all_first, all_last = tile_interval(
                low, high, b, origin + start, origin + stop, keys
            )
            tile_dw[:] = 0.0
            for block in range(max(first, begin), min(last, finish), KEYS):
                end = min(block + KEYS, last, finish)
                a, z = max(block, all_first), min(end, all_last)
                if stop - start < QUERIES or a >= z:
                    a = z = end
                else:
                    gather4(e, at, f, key, hidden, slopes, row, keys, a, z, dq, to, dk, tile_dw)
                    spread4(weights, row, keys, grad, out, size, a, z, dv, val)
                for i in range(stop - start):  # keys that not all of the four see
                    x, y = bounds(low, high, b, origin + start + i, keys)
                    r, q, o, t = row + i * keys, at + i * hidden, out + i * size, to + i * hidden
                    for c, d in ((max(x, block), min(y, a)), (max(x, z), min(y, end))):
                        if c < d:
                            gather1(e, q, f, key, hidden, slopes, r, c, d, dq, t, dk, tile_dw)
                            spread1(weights, r, grad, o, size, c, d, dv, val)
            for h in range(hidden):
                dw[b, part, h] += tile_dw[h]

    return gather_range


gather_factored, gather_direct = gather_with(factored_cell), gather_with(direct_cell)


@inner
def gather_task(t, origin, e, f, modes, low, high, weights, slopes, grad, dq, dk, dw, dv):
    b, part = t // dq.shape[1], t % dq.shape[1]
    if modes[b, 0] == DIRECT:
        gather_direct(b, part, origin, e, f, low, high, weights, slopes, grad, dq, dk, dw, dv)
    else:
        gather_factored(b, part, origin, e, f, low, high, weights, slopes, grad, dq, dk, dw, dv)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], i8[:,::1], i8[:,::1], i8[:,::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,:,::1], T[:,:,::1], f8[:,:,::1], T[:,:,::1], i8)"
)
def gather(e, f, modes, low, high, weights, slopes, grad, dq, dk, dw, dv, origin):
    """Add to the gradients what the R query rows from origin on give.

    weights and slopes: (B, R, N); grad: (B, M, Dv); dv: (B, N, Dv), or Dv = 0 for the scores alone;
    dq: (B, parts, R, hidden), dw: (B, parts, hidden), both to be summed over the parts; dk: (B, N,
    hidden); dq and dk still lack the factor 4w.
    """
    for t in prange(dq.shape[0] * dq.shape[1]):
        gather_task(
            np.int64(t), origin, e, f, modes, low, high, weights, slopes, grad, dq, dk, dw, dv
        )
