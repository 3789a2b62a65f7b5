"""tanh(q + k) from factors of q and k, or directly, for additive and feature-wise loops.

With E = exp(2q) and F = exp(2k): tanh(q + k) = 1 − 2r, r = 1/(1 + u), u = E·F, and its derivative
is 4ur².
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .elementary import exponential, reciprocal, tanh_and_slope
from .rows import bounds
from .vector import at_least, lanes, largest, load, magnitude, store, zero

# How tanh(q + k) is computed, by the largest |q| and |k| of a sequence.
DIRECT = 0  # from q + k itself: the factors would overflow, or 1 − 2r cancel
FACTORED = 1  # from E·F
GROUPED = 2  # from E·F with one division for four hidden units


@inner
def limits(array):
    """The |q| + |k| between which factors serve, and those between which four may be grouped.

    Up to the largest, u = E·F is finite and below 2¹²⁶ (float64: 2¹⁰²²), so that no inf · 0 arises.
    """
    return (0.25, 43.0, 1.0, 10.8) if array.itemsize == 4 else (0.02, 350.0, 0.1, 88.0)


@inner
def reach(array, start, stop):
    """The largest magnitude between two flat positions, NaN aside."""
    top = zero(array)
    for place in range(start, stop, lanes(array)):
        top = at_least(top, magnitude(load(array, place)))
    return largest(top)


@inner
def mode_for(array, size):
    """How to compute tanh where |q| + |k| are up to `size`."""
    least, most, least_grouped, most_grouped = limits(array)
    if least_grouped <= size <= most_grouped:
        return GROUPED
    return FACTORED if least <= size <= most else DIRECT


@inner
def choose(b, query, key, low, high, modes):
    """Store how to compute tanh for one sequence, and the interval of keys that any query sees."""
    _, queries, hidden = query.shape
    keys = key.shape[1]
    first, last = keys, 0
    for i in range(queries):
        start, stop = bounds(low, high, b, i, keys)
        if start < stop:
            first, last = min(first, start), max(last, stop)
    at = b * keys * hidden
    q = reach(query, b * queries * hidden, (b + 1) * queries * hidden)
    k = reach(key, at + first * hidden, at + last * hidden)
    modes[b, 0], modes[b, 1], modes[b, 2] = mode_for(query, q + k), first, last


@inner
def factor_row(source, t, modes, limited, out):
    """Row t of the factors, of queries or of the keys that any query sees."""
    _, rows, hidden = source.shape
    b = t // rows
    if limited and not modes[b, 1] <= t - b * rows < modes[b, 2]:
        return
    for place in range(t * hidden, (t + 1) * hidden, lanes(source)):
        x = load(source, place)
        store(out, place, x if modes[b, 0] == DIRECT else exponential(x + x))


@kernel("void(T[:,:,::1], T[:,:,::1], i8[:,::1], i8[:,::1], i8[:,::1], T[:,:,::1], T[:,:,::1])")
def factor(query, key, low, high, modes, e, f):
    """Fill modes (B, 3), see `choose`, and the factors e and f, or q and k themselves."""
    for t in prange(query.shape[0]):
        choose(np.int64(t), query, key, low, high, modes)
    for t in prange(query.shape[0] * query.shape[1]):
        factor_row(query, np.int64(t), modes, False, e)
    for t in prange(key.shape[0] * key.shape[1]):
        factor_row(key, np.int64(t), modes, True, f)


@inner
def direct_cell(q, k):
    """tanh(q + k) and a quarter of its derivative, of vectors of hidden units."""
    return tanh_and_slope(q + k)


@inner
def factored_cell(e, f):
    """r, of which tanh(q + k) is 1 − 2r, and a quarter of the derivative."""
    u = e * f
    r = reciprocal(u + 1.0)
    return r, u * r * r
