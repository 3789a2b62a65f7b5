"""Additive scores: w · tanh(q + k) with one division for up to four hidden units.

Importing this imports numba.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .elementary import reciprocal
from .factor import DIRECT, GROUPED, direct_cell, factored_cell
from .rows import bounds
from .vector import lanes, load, store, total, totals8, zero


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
