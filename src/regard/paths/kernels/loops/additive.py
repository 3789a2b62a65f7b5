"""Additive scores: w · tanh(q + k) with one division for up to four hidden units.

Importing this imports numba.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .elementary import reciprocal
from .factor import DIRECT, GROUPED, direct_cell, factored_cell
from .rows import bounds
from .vector import lanes, load, store, total, totals, zero


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
    if mode == GROUPED:
        grouped = hidden - hidden % (4 * step)
        sums = zero(w)
        for h in range(0, hidden, step):
            sums = sums + load(w, h)
        while j + 4 <= last:
            k0 = key + j * hidden
            k1, k2, k3 = k0 + hidden, k0 + 2 * hidden, k0 + 3 * hidden
            a = b = c = d = zero(w)  # Σ w/(1 + u), lane by lane
            for h in range(0, grouped, 4 * step):
                a = a + group(e, at, f, k0, w, h, step)
                b = b + group(e, at, f, k1, w, h, step)
                c = c + group(e, at, f, k2, w, h, step)
                d = d + group(e, at, f, k3, w, h, step)
            for h in range(grouped, hidden, step):
                x, weight = load(e, at + h), load(w, h)
                a = a + weight * reciprocal(x * load(f, k0 + h) + 1.0)
                b = b + weight * reciprocal(x * load(f, k1 + h) + 1.0)
                c = c + weight * reciprocal(x * load(f, k2 + h) + 1.0)
                d = d + weight * reciprocal(x * load(f, k3 + h) + 1.0)
            store(
                out,
                row + j,
                totals(sums - 2.0 * a, sums - 2.0 * b, sums - 2.0 * c, sums - 2.0 * d),
            )
            j += 4
    while j < last:
        a = zero(w)
        for h in range(0, hidden, step):
            x, y = load(e, at + h), load(f, key + j * hidden + h)
            if mode == DIRECT:
                a = a + load(w, h) * direct_cell(x, y)[0]
            else:
                a = a + load(w, h) * factored_cell(x, y)[0]
        out[row + j] = total(a)
        j += 1


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
