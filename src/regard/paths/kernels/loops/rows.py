"""Loops over the keys of one or of four queries: dot products, weighted sums, softmax.

Every function takes arrays with the flat position at which its row starts, and an interval of keys
[first, last); what lies outside of it is neither read nor written. Sizes are whole vectors. Four
queries at a time share what is loaded for a key. Importing this imports numba.
"""

from ..compile import inner
from .elementary import exponential
from .vector import (
    add_to,
    at_least,
    broadcast,
    lanes,
    largest,
    like,
    load,
    store,
    total,
    totals,
    zero,
)

KEYS = 32  # keys per block: what is loaded for them stays in the first-level cache
QUERIES = 4  # queries that share what is loaded for a key
SENTINEL = -1e30  # a score below any other, yet finite


@inner
def bounds(low, high, batch, query, keys):
    """The interval of keys that a query sees, within 0 … keys; low and high may be shared."""
    first = max(low[min(batch, low.shape[0] - 1), query], 0)
    return first, max(first, min(high[min(batch, high.shape[0] - 1), query], keys))


@inner
def tile_interval(low, high, b, start, stop, keys):
    """The keys that some, and the keys that all of the queries start … stop − 1 see."""
    first, last = bounds(low, high, b, start, keys)
    all_first, all_last = first, last
    for i in range(start + 1, stop):
        a, z = bounds(low, high, b, i, keys)
        if a < z:
            first, last = (min(first, a), max(last, z)) if first < last else (a, z)
        all_first, all_last = max(all_first, a), min(all_last, z)
    return first, last, all_first, all_last


@inner
def dot_row(a, at, keys, key, size, first, last, out, row):
    """out[j] = a · keys[j]."""
    step = lanes(a)
    j = first
    while j + 4 <= last:
        place = key + j * size
        s0 = s1 = s2 = s3 = zero(a)
        for d in range(0, size, step):
            x = load(a, at + d)
            s0 = s0 + x * load(keys, place + d)
            s1 = s1 + x * load(keys, place + size + d)
            s2 = s2 + x * load(keys, place + 2 * size + d)
            s3 = s3 + x * load(keys, place + 3 * size + d)
        store(out, row + j, totals(s0, s1, s2, s3))
        j += 4
    while j < last:
        s0 = zero(a)
        for d in range(0, size, step):
            s0 = s0 + load(a, at + d) * load(keys, key + j * size + d)
        out[row + j] = total(s0)
        j += 1


@inner
def softmax_row(scores, row, first, last):
    """Exponentiate a row of scores against its largest one, in place; return that and the sum.

    Writes up to one vector of sentinels behind the row.
    """
    step = lanes(scores)
    for j in range(last, last + step):
        scores[row + j] = SENTINEL
    top = load(scores, row + first)
    for j in range(first, last, step):
        top = at_least(top, load(scores, row + j))
    best = largest(top)
    mass = zero(scores)
    for j in range(first, last, step):
        weight = exponential(load(scores, row + j) - like(top, best))
        store(scores, row + j, weight)
        mass = mass + weight
    return best, total(mass)


@inner
def scale_row(scores, row, first, last, factor):
    for j in range(first, last):
        scores[row + j] *= factor


@inner
def weigh1(weights, row, values, value, size, first, last, out, at):
    """out += Σ_j weights[j] · values[j]."""
    for d in range(0, size, lanes(values)):
        sums = zero(values)
        for j in range(first, last):
            sums = sums + broadcast(weights, row + j) * load(values, value + j * size + d)
        add_to(out, at + d, sums)


@inner
def weigh4(weights, row, stride, values, value, size, first, last, out, at):
    """out[i] += Σ_j weights[i, j] · values[j] for four queries i."""
    step = lanes(values)
    pairs = size - size % (2 * step)
    for d in range(0, pairs, 2 * step):  # two vectors of each of the four results in registers
        a0 = a1 = b0 = b1 = c0 = c1 = d0 = d1 = zero(values)
        for j in range(first, last):
            x = load(values, value + j * size + d)
            y = load(values, value + j * size + d + step)
            a = broadcast(weights, row + j)
            b = broadcast(weights, row + stride + j)
            c = broadcast(weights, row + 2 * stride + j)
            e = broadcast(weights, row + 3 * stride + j)
            a0, a1 = a0 + a * x, a1 + a * y
            b0, b1 = b0 + b * x, b1 + b * y
            c0, c1 = c0 + c * x, c1 + c * y
            d0, d1 = d0 + e * x, d1 + e * y
        place = at + d
        add_to(out, place, a0)
        add_to(out, place + step, a1)
        add_to(out, place + size, b0)
        add_to(out, place + size + step, b1)
        add_to(out, place + 2 * size, c0)
        add_to(out, place + 2 * size + step, c1)
        add_to(out, place + 3 * size, d0)
        add_to(out, place + 3 * size + step, d1)
    if pairs < size:
        for i in range(4):
            sums = zero(values)
            for j in range(first, last):
                x = load(values, value + j * size + pairs)
                sums = sums + broadcast(weights, row + i * stride + j) * x
            add_to(out, at + i * size + pairs, sums)


@inner
def spread1(weights, row, source, at, size, first, last, out, place):
    """out[j] += weights[j] · source."""
    for j in range(first, last):
        w = broadcast(weights, row + j)
        for d in range(0, size, lanes(out)):
            add_to(out, place + j * size + d, w * load(source, at + d))


@inner
def spread4(weights, row, stride, source, at, size, first, last, out, place):
    """out[j] += Σ_i weights[i, j] · source[i] for four queries i."""
    for d in range(0, size, lanes(out)):
        x0 = load(source, at + d)
        x1 = load(source, at + size + d)
        x2 = load(source, at + 2 * size + d)
        x3 = load(source, at + 3 * size + d)
        for j in range(first, last):
            here = row + j
            add_to(
                out,
                place + j * size + d,
                broadcast(weights, here) * x0
                + broadcast(weights, here + stride) * x1
                + broadcast(weights, here + 2 * stride) * x2
                + broadcast(weights, here + 3 * stride) * x3,
            )
