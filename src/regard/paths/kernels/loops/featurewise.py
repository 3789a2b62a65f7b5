"""Feature-wise attention's loops: for every feature of every query a softmax over the keys.

The score s = c·tanh(x), x = (q + k)/c, lies between −c and c, so eˢ needs no running maximum. The
factors of `factor` give it as c·(1 − 2r). Features are independent, so a task of backward owns one
vector of features of one sequence, and no sum depends on the number of threads.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .elementary import power_of_two, reciprocal, tanh_and_slope
from .factor import DIRECT
from .rows import QUERIES, bounds, shared_interval
from .vector import add_to, lanes, like, load, store, zero

KEYS = 128  # keys per block, of one vector of features


@inner
def factored_weight(e, f, scale):
    """2^(scale·tanh x), which is eˢ for scale = c·log₂e, and a quarter of tanh' x."""
    u = e * f
    r = reciprocal(u + 1.0)
    return power_of_two(like(r, scale) - like(r, 2 * scale) * r), u * r * r


@inner
def direct_weight(q, k, scale):
    t, slope = tanh_and_slope(q + k)
    return power_of_two(t * scale), slope


def forward_with(weight):
    """The loop over the queries of one tile, for a way to compute eˢ."""

    @inner
    def attend1(e, at, f, key, value, size, scale, first, last, out, mass):
        x, sums, total = load(e, at), zero(e), zero(e)
        for place in range(key + first * size, key + last * size, size):
            p, _ = weight(x, load(f, place), scale)
            sums, total = sums + p * load(value, place), total + p
        add_to(out, at, sums)
        add_to(mass, at, total)

    @inner
    def attend4(e, at, f, key, value, size, scale, first, last, out, mass):
        x0, x1 = load(e, at), load(e, at + size)
        x2, x3 = load(e, at + 2 * size), load(e, at + 3 * size)
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero(e)
        for place in range(key + first * size, key + last * size, size):
            y, v = load(f, place), load(value, place)
            p0, _ = weight(x0, y, scale)
            p1, _ = weight(x1, y, scale)
            p2, _ = weight(x2, y, scale)
            p3, _ = weight(x3, y, scale)
            a0, b0 = a0 + p0 * v, b0 + p0
            a1, b1 = a1 + p1 * v, b1 + p1
            a2, b2 = a2 + p2 * v, b2 + p2
            a3, b3 = a3 + p3 * v, b3 + p3
        for i, sums, total in ((0, a0, b0), (1, a1, b1), (2, a2, b2), (3, a3, b3)):
            add_to(out, at + i * size, sums)
            add_to(mass, at + i * size, total)

    @inner
    def attend_tile(b, start, stop, e, f, value, low, high, scale, out, mass):
        _, queries, size = e.shape
        keys = f.shape[1]
        first, last, all_first, all_last = shared_interval(low, high, b, start, stop, keys)
        for d in range(0, size, lanes(e)):
            key, at = b * keys * size + d, (b * queries + start) * size + d
            for block in range(first, last, KEYS):
                end = min(block + KEYS, last)
                a, z = max(block, all_first), min(end, all_last)
                if stop - start < QUERIES or a >= z:
                    a = z = end
                else:
                    attend4(e, at, f, key, value, size, scale, a, z, out, mass)
                for i in range(start, stop):  # keys that only some of the four see
                    x, y = bounds(low, high, b, i, keys)
                    here = at + (i - start) * size
                    for c, g in ((max(x, block), min(y, a)), (max(x, z), min(y, end))):
                        if c < g:
                            attend1(e, here, f, key, value, size, scale, c, g, out, mass)

    return attend_tile


attend_factored, attend_direct = forward_with(factored_weight), forward_with(direct_weight)


@inner
def attend_task(t, e, f, value, modes, low, high, scale, out, mass):
    _, queries, size = e.shape
    tiles = (queries + QUERIES - 1) // QUERIES
    b = t // tiles
    start = (t - b * tiles) * QUERIES
    stop = min(start + QUERIES, queries)
    if modes[b, 0] == DIRECT:
        attend_direct(b, start, stop, e, f, value, low, high, scale, out, mass)
    else:
        attend_factored(b, start, stop, e, f, value, low, high, scale, out, mass)
    for i in range(start, stop):
        first, last = bounds(low, high, b, i, f.shape[1])
        if first < last:
            at = (b * queries + i) * size
            for place in range(at, at + size, lanes(e)):
                store(out, place, load(out, place) * reciprocal(load(mass, place)))


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[:,:,::1], i8[:,::1], i8[:,::1], i8[:,::1], f8, T[:,:,::1],"
    " T[:,:,::1])"
)
def attend(e, f, value, modes, low, high, scale, out, mass):
    """Fill out and mass = Σ_j eˢ, both (B, M, D), zeros before."""
    for t in prange(e.shape[0] * ((e.shape[1] + QUERIES - 1) // QUERIES)):
        attend_task(np.int64(t), e, f, value, modes, low, high, scale, out, mass)


def backward_with(weight):
    """The loop over one vector of features of one sequence, for a way to compute eˢ."""

    @inner
    def gradients(x, y, v, o, g, scale):
        """A quarter of the gradient of q + k, and the gradient of the value, of one cell."""
        p, slope = weight(x, y, scale)
        p = p * g
        return p * (v - o) * slope, p

    @inner
    def gather1(e, at, f, key, value, size, scale, first, last, out, share, dq, dk, dv):
        x, o, g, sum_q = load(e, at), load(out, at), load(share, at), zero(e)
        for place in range(key + first * size, key + last * size, size):
            step, dval = gradients(x, load(f, place), load(value, place), o, g, scale)
            sum_q = sum_q + step
            add_to(dk, place, step)
            add_to(dv, place, dval)
        add_to(dq, at, sum_q * 4.0)

    @inner
    def gather4(e, at, f, key, value, size, scale, first, last, out, share, dq, dk, dv):
        at1, at2, at3 = at + size, at + 2 * size, at + 3 * size
        x0, x1, x2, x3 = load(e, at), load(e, at1), load(e, at2), load(e, at3)
        o0, o1, o2, o3 = load(out, at), load(out, at1), load(out, at2), load(out, at3)
        g0, g1, g2, g3 = load(share, at), load(share, at1), load(share, at2), load(share, at3)
        q0 = q1 = q2 = q3 = zero(e)
        for place in range(key + first * size, key + last * size, size):
            y, v = load(f, place), load(value, place)
            sum_k, sum_v = load(dk, place), load(dv, place)
            step, dval = gradients(x0, y, v, o0, g0, scale)
            q0, sum_k, sum_v = q0 + step, sum_k + step, sum_v + dval
            step, dval = gradients(x1, y, v, o1, g1, scale)
            q1, sum_k, sum_v = q1 + step, sum_k + step, sum_v + dval
            step, dval = gradients(x2, y, v, o2, g2, scale)
            q2, sum_k, sum_v = q2 + step, sum_k + step, sum_v + dval
            step, dval = gradients(x3, y, v, o3, g3, scale)
            q3, sum_k, sum_v = q3 + step, sum_k + step, sum_v + dval
            store(dk, place, sum_k)
            store(dv, place, sum_v)
        add_to(dq, at, q0 * 4.0)
        add_to(dq, at1, q1 * 4.0)
        add_to(dq, at2, q2 * 4.0)
        add_to(dq, at3, q3 * 4.0)

    @inner
    def gather_features(b, d, e, f, value, low, high, scale, out, share, dq, dk, dv):
        _, queries, size = e.shape
        keys = f.shape[1]
        key = b * keys * size + d
        for start in range(0, queries, QUERIES):
            stop = min(start + QUERIES, queries)
            at = (b * queries + start) * size + d
            first, last, all_first, all_last = shared_interval(low, high, b, start, stop, keys)
            for block in range(first, last, KEYS):
                end = min(block + KEYS, last)
                a, z = max(block, all_first), min(end, all_last)
                if stop - start < QUERIES or a >= z:
                    a = z = end
                else:
                    gather4(e, at, f, key, value, size, scale, a, z, out, share, dq, dk, dv)
                for i in range(start, stop):  # keys that only some of the four see
                    x, y = bounds(low, high, b, i, keys)
                    here = at + (i - start) * size
                    for c, g in ((max(x, block), min(y, a)), (max(x, z), min(y, end))):
                        if c < g:
                            gather1(
                                e, here, f, key, value, size, scale, c, g, out, share, dq, dk, dv
                            )
        for place in range(key, key + keys * size, size):
            store(dk, place, load(dk, place) * 4.0)

    return gather_features


gather_factored, gather_direct = backward_with(factored_weight), backward_with(direct_weight)


@inner
def gather_task(t, e, f, value, modes, low, high, scale, out, share, dq, dk, dv):
    vectors = e.shape[2] // lanes(e)
    b = t // vectors
    d = (t - b * vectors) * lanes(e)
    if modes[b, 0] == DIRECT:
        gather_direct(b, d, e, f, value, low, high, scale, out, share, dq, dk, dv)
    else:
        gather_factored(b, d, e, f, value, low, high, scale, out, share, dq, dk, dv)


@kernel(
    "void(T[:,:,::1], T[:,:,::1], T[:,:,::1], i8[:,::1], i8[:,::1], i8[:,::1], f8, T[:,:,::1],"
    " T[:,:,::1], T[:,:,::1], T[:,:,::1], T[:,:,::1])"
)
def gather(e, f, value, modes, low, high, scale, out, share, dq, dk, dv):
    """Add up the gradients dq (B, M, D), dk and dv (B, N, D), zeros before.

    out is what `attend` filled, share = dL/dout / mass.
    """
    for t in prange(e.shape[0] * (e.shape[2] // lanes(e))):
        gather_task(np.int64(t), e, f, value, modes, low, high, scale, out, share, dq, dk, dv)
