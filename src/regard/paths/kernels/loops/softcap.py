"""Loops over soft-capped scores: e^(c·tanh x) and its gradient, in place."""

from numba import prange

from ..compile import inner, kernel
from .elementary import exponential, tanh_and_slope
from .vector import lanes, load, store

CHUNK = 1 << 12  # elements of one task


@inner
def exponentials_of(scores, start, stop, cap):
    for place in range(start, stop, lanes(scores)):
        t, _ = tanh_and_slope(load(scores, place))
        store(scores, place, exponential(t * cap))


@kernel("void(T[::1], f8)")
def exponentials(scores, cap):
    """x → e^(c·tanh x); writes up to one vector behind the array."""
    count = scores.size
    for chunk in prange((count + CHUNK - 1) // CHUNK):
        exponentials_of(scores, chunk * CHUNK, min(chunk * CHUNK + CHUNK, count), cap)


@inner
def gradients_of(scores, slopes, start, stop, cap):
    for place in range(start, stop, lanes(scores)):
        t, quarter = tanh_and_slope(load(scores, place))
        p = exponential(t * cap)
        store(scores, place, p)
        store(slopes, place, load(slopes, place) * p * quarter * 4.0)


@kernel("void(T[::1], T[::1], f8)")
def gradients(scores, slopes, cap):
    """The same, and d → d · e^(c·tanh x) · tanh' x in the other array."""
    count = scores.size
    for chunk in prange((count + CHUNK - 1) // CHUNK):
        gradients_of(scores, slopes, chunk * CHUNK, min(chunk * CHUNK + CHUNK, count), cap)
