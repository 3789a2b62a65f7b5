"""Additive attention backward, in two steps over a block of query rows.

First the slopes G = dL/dscores of each row; then, with every task owning a range of keys,
dq_i = 4w ∘ Σ_j G_ij ur², dk_j = 4w ∘ Σ_i G_ij ur², dw = Σ_ij G_ij (1 − 2r), dv_j = Σ_i P_ij dout_i.
The ranges do not depend on the number of threads, so neither do the sums.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .additive import PARTS, TILE, keep_rows, weight_tile
from .factor import DIRECT, direct_cell, factored_cell
from .rows import (
    QUERIES,
    bounds,
    dot_row,
    keys_per_block,
    shared_interval,
    slope_row,
    spread1,
    spread4,
    sum_row,
)
from .vector import add_to, broadcast, lanes, load, store, zero


@inner
def slope_part(part, e, f, w, modes, low, high, value, grad, weights, slopes, origin, keep):
    """Weights, unless kept, and slopes of every PARTS-th tile of the rows from origin on."""
    batch, block_rows, keys = slopes.shape
    size = value.shape[2]
    tiles = (block_rows + TILE - 1) // TILE
    if part >= batch * tiles:
        return
    stride, some = keys + lanes(e), keys_per_block(value, size)
    rows = np.empty(min(TILE, block_rows) * stride, e.dtype)
    for t in range(part, batch * tiles, PARTS):
        b = t // tiles
        start = origin + (t - b * tiles) * TILE
        stop = min(start + TILE, origin + block_rows)
        if not keep:
            weight_tile(b, start, stop, e, f, w, modes, low, high, rows, stride)
            keep_rows(b, start, stop, rows, stride, low, high, origin, weights)
        first, last, _, _ = shared_interval(low, high, b, start, stop, keys)
        for block in range(first, last, some):
            for i in range(start, stop):
                x, y = bounds(low, high, b, i, keys)
                x, y = max(x, block), min(y, block + some)
                at, row = (b * grad.shape[1] + i) * size, (i - start) * stride
                dot_row(grad, at, value, b * keys * size, size, x, y, rows, row)
        for i in range(start, stop):
            x, y = bounds(low, high, b, i, keys)
            at = (b * block_rows + i - origin) * keys
            slope_row(weights, at, rows, (i - start) * stride, x, y, slopes, at)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[::1], i8[:,::1], i8[:,::1], i8[:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,:,::1], i8, b1)"
)
def slope(e, f, w, modes, low, high, value, grad, weights, slopes, origin, keep):
    """Fill slopes (B, R, N), and weights unless kept, of the R query rows from origin on."""
    for part in prange(PARTS):
        t = np.int64(part)
        slope_part(t, e, f, w, modes, low, high, value, grad, weights, slopes, origin, keep)


def gather_with(cell, whole, share):
    """The loop that adds up gradients over rows and a range of keys, for a kind of tanh.

    The cell returns z, of which the tanh is whole + share·z, so that dw = whole·ΣG + share·Σ G·z,
    summed in small blocks, and a quarter of the derivative.
    """

    @inner
    def gather1(e, at, f, key, hidden, g, row, first, last, dq, to, dk, dw):
        constant = whole * sum_row(g, row, first, last)
        for h in range(0, hidden, lanes(e)):
            x = load(e, at + h)
            sum_q = sum_w = zero(e)
            for j in range(first, last):
                place = key + j * hidden + h
                z, s = cell(x, load(f, place))
                slope = broadcast(g, row + j)
                sum_q, sum_w = sum_q + slope * s, sum_w + slope * z
                add_to(dk, place, slope * s)
            add_to(dq, to + h, sum_q)
            add_to(dw, h, constant + share * sum_w)

    @inner
    def gather4(e, at, f, key, hidden, g, row, stride, first, last, dq, to, dk, dw):
        row1, row2, row3 = row + stride, row + 2 * stride, row + 3 * stride
        constant = sum_row(g, row, first, last) + sum_row(g, row1, first, last)
        constant += sum_row(g, row2, first, last) + sum_row(g, row3, first, last)
        constant *= whole
        for h in range(0, hidden, lanes(e)):
            x0, x1 = load(e, at + h), load(e, at + hidden + h)
            x2, x3 = load(e, at + 2 * hidden + h), load(e, at + 3 * hidden + h)
            q0 = q1 = q2 = q3 = sum_w = zero(e)
            for j in range(first, last):
                place = key + j * hidden + h
                y, sum_k = load(f, place), load(dk, place)
                slope = broadcast(g, row + j)
                z, s = cell(x0, y)
                q0, sum_k, sum_w = q0 + slope * s, sum_k + slope * s, sum_w + slope * z
                slope = broadcast(g, row1 + j)
                z, s = cell(x1, y)
                q1, sum_k, sum_w = q1 + slope * s, sum_k + slope * s, sum_w + slope * z
                slope = broadcast(g, row2 + j)
                z, s = cell(x2, y)
                q2, sum_k, sum_w = q2 + slope * s, sum_k + slope * s, sum_w + slope * z
                slope = broadcast(g, row3 + j)
                z, s = cell(x3, y)
                q3, sum_k, sum_w = q3 + slope * s, sum_k + slope * s, sum_w + slope * z
                store(dk, place, sum_k)
            add_to(dq, to + h, q0)
            add_to(dq, to + hidden + h, q1)
            add_to(dq, to + 2 * hidden + h, q2)
            add_to(dq, to + 3 * hidden + h, q3)
            add_to(dw, h, constant + share * sum_w)

    @inner
    def gather_range(b, part, e, f, low, high, weights, slopes, grad, dq, dk, dw, dv, origin):
        _, rows, keys = slopes.shape
        hidden, size = e.shape[2], grad.shape[2]
        parts = dq.shape[1]
        span = (keys + parts - 1) // parts
        key, val = b * keys * hidden, b * keys * size
        block_dw = np.empty(hidden, e.dtype)
        finish = min((part + 1) * span, keys)
        some = keys_per_block(f, 2 * hidden + size)
        for block in range(part * span, finish, some):
            end = min(block + some, finish)
            block_dw[:] = 0.0
            for start in range(0, rows, QUERIES):
                stop = min(start + QUERIES, rows)
                query = b * e.shape[1] + origin + start
                at, out, row = query * hidden, query * size, (b * rows + start) * keys
                to = ((b * parts + part) * rows + start) * hidden
                _, _, a, z = shared_interval(low, high, b, origin + start, origin + stop, keys)
                a, z = max(a, block), min(z, end)
                if stop - start == QUERIES and a < z:
                    gather4(e, at, f, key, hidden, slopes, row, keys, a, z, dq, to, dk, block_dw)
                    spread4(weights, row, keys, grad, out, size, a, z, dv, val)
                else:
                    a = z = end
                for i in range(start, stop):  # keys that only some of the four see
                    x, y = bounds(low, high, b, origin + i, keys)
                    for c, d in ((max(x, block), min(y, a)), (max(x, z), min(y, end))):
                        if c < d:
                            gather1(e, at, f, key, hidden, slopes, row, c, d, dq, to, dk, block_dw)
                            spread1(weights, row, grad, out, size, c, d, dv, val)
                    at, out, row, to = at + hidden, out + size, row + keys, to + hidden
            for h in range(hidden):
                dw[b, part, h] += block_dw[h]

    return gather_range


gather_factored = gather_with(factored_cell, 1.0, -2.0)
gather_direct = gather_with(direct_cell, 0.0, 1.0)


@inner
def gather_task(t, e, f, modes, low, high, weights, slopes, grad, dq, dk, dw, dv, origin):
    b, part = t // dq.shape[1], t % dq.shape[1]
    if modes[b, 0] == DIRECT:
        gather_direct(b, part, e, f, low, high, weights, slopes, grad, dq, dk, dw, dv, origin)
    else:
        gather_factored(b, part, e, f, low, high, weights, slopes, grad, dq, dk, dw, dv, origin)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], i8[:,::1], i8[:,::1], i8[:,::1], T[:,:,::1], T[:,:,::1],"
    " T[:,:,::1], T[:,:,:,::1], T[:,:,::1], f8[:,:,::1], T[:,:,::1], i8)"
)
def gather(e, f, modes, low, high, weights, slopes, grad, dq, dk, dw, dv, origin):
    """Add to the gradients the terms of the R query rows from origin on.

    weights and slopes: (B, R, N); grad: (B, M, Dv); dv: (B, N, Dv), or Dv = 0 for the scores alone;
    dq: (B, parts, R, hidden), dw: (B, parts, hidden), both to be summed over the parts; dk: (B, N,
    hidden); dq and dk still lack the factor 4w.
    """
    for task in prange(dq.shape[0] * dq.shape[1]):
        t = np.int64(task)
        gather_task(t, e, f, modes, low, high, weights, slopes, grad, dq, dk, dw, dv, origin)
