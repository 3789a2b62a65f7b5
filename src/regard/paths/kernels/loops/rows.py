"""Loops over the keys of one or of four queries: dot products, weighted sums, softmax.

Every function takes arrays with the flat position at which its row starts, and an interval of keys
[first, last); what lies outside of it is neither read nor written. Sizes are whole vectors. Four
queries at a time share what is loaded for a key.
"""

from ..compile import inner
from .elementary import exponential
from .vector import (
    add_to,
    at_least,
    broadcast,
    element,
    lanes,
    largest,
    like,
    load,
    store,
    total,
    totals4,
    zero,
)

QUERIES = 4  # queries that share what is loaded for a key
SENTINEL = -1e30  # a score below any other, yet finite


@inner
def bounds(low, high, batch, query, keys):
    """The interval of keys that a query sees, within 0 … keys; low and high may be shared."""
    first = max(low[min(batch, low.shape[0] - 1), query], 0)
    return first, max(first, min(high[min(batch, high.shape[0] - 1), query], keys))


@inner
def shared_interval(low, high, b, start, stop, keys):
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
def keys_per_block(array, size):
    """How many keys, of `size` elements in all arrays together, fit the first-level cache."""
    return max(1, (1 << 15) // (size * array.itemsize) // lanes(array)) * lanes(array)


@inner
def dot_row(a, at, keys, key, size, first, last, out, row):
    """out[j] = a · keys[j]."""
    step = lanes(a)
    j = first
    while last - j >= 4:
        k0 = key + j * size
        k1, k2, k3 = k0 + size, k0 + 2 * size, k0 + 3 * size
        s0 = s1 = s2 = s3 = zero(a)
        for d in range(0, size, step):
            x = load(a, at + d)
            s0, s1 = s0 + x * load(keys, k0 + d), s1 + x * load(keys, k1 + d)
            s2, s3 = s2 + x * load(keys, k2 + d), s3 + x * load(keys, k3 + d)
        store(out, row + j, totals4(s0, s1, s2, s3))
        j += 4
    for single in range(j, last):
        s0 = zero(a)
        for d in range(0, size, step):
            s0 = s0 + load(a, at + d) * load(keys, key + single * size + d)
        store(out, row + single, total(s0))


@inner
def sum_row(values, row, first, last):
    step = lanes(values)
    whole = last - (last - first) % step
    sums = zero(values)
    for j in range(first, whole, step):
        sums = sums + load(values, row + j)
    result = total(sums)
    for j in range(whole, last):
        result += element(values, row + j)
    return result


@inner
def softmax_row(scores, row, first, last):
    """Exponentiate a row of scores against its largest one, in place; return that and the sum.

    Writes up to one vector of sentinels behind the row.
    """
    step = lanes(scores)
    top = zero(scores) + SENTINEL
    store(scores, row + last, top)
    for place in range(row + first, row + last, step):
        top = at_least(top, load(scores, place))
    best = largest(top)
    mass = zero(scores)
    for place in range(row + first, row + last, step):
        weight = exponential(load(scores, place) - like(mass, best))
        store(scores, place, weight)
        mass = mass + weight
    return best, total(mass)


@inner
def scale_row(scores, row, first, last, factor):
    """Scale a row, and up to a vector behind it."""
    for place in range(row + first, row + last, lanes(scores)):
        store(scores, place, load(scores, place) * factor)


@inner
def copy_row(source, row, first, last, out, to):
    step = lanes(source)
    while first + step <= last:
        store(out, to + first, load(source, row + first))
        first += step
    for j in range(first, last):
        store(out, to + j, element(source, row + j))


@inner
def add_row(source, row, first, last, out, to):
    """out += source."""
    step = lanes(source)
    while first + step <= last:
        add_to(out, to + first, load(source, row + first))
        first += step
    for j in range(first, last):
        store(out, to + j, element(out, to + j) + element(source, row + j))


@inner
def slope_row(weights, row, steps, at, first, last, out, to):
    """out[j] = weights[j] · (steps[j] − Σ weights · steps), the derivative of softmax."""
    step = lanes(weights)
    whole = last - (last - first) % step
    sums = zero(weights)
    for j in range(first, whole, step):
        sums = sums + load(weights, row + j) * load(steps, at + j)
    mean = total(sums)
    for j in range(whole, last):
        mean += element(weights, row + j) * element(steps, at + j)
    for j in range(first, whole, step):
        store(out, to + j, load(weights, row + j) * (load(steps, at + j) - like(sums, mean)))
    for j in range(whole, last):
        store(out, to + j, element(weights, row + j) * (element(steps, at + j) - mean))


@inner
def weigh1(weights, row, values, value, size, first, last, out, at):
    """out += Σ_j weights[j] · values[j]."""
    step = lanes(values)
    fours = size - size % (4 * step)
    for d in range(0, fours, 4 * step):  # neighbours in memory: one vector of each row is far apart
        a0 = a1 = a2 = a3 = zero(values)
        for j in range(first, last):
            w, place = broadcast(weights, row + j), value + j * size + d
            a0, a1 = a0 + w * load(values, place), a1 + w * load(values, place + step)
            place += 2 * step
            a2, a3 = a2 + w * load(values, place), a3 + w * load(values, place + step)
        add_to(out, at + d, a0)
        add_to(out, at + d + step, a1)
        add_to(out, at + d + 2 * step, a2)
        add_to(out, at + d + 3 * step, a3)
    for d in range(fours, size, step):
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
    step = lanes(out)
    pairs = size - size % (2 * step)
    at1, at2, at3 = at + size, at + 2 * size, at + 3 * size
    for d in range(0, pairs, 2 * step):  # two vectors of each of the four rows in registers
        x0, y0 = load(source, at + d), load(source, at + d + step)
        x1, y1 = load(source, at1 + d), load(source, at1 + d + step)
        x2, y2 = load(source, at2 + d), load(source, at2 + d + step)
        x3, y3 = load(source, at3 + d), load(source, at3 + d + step)
        for j in range(first, last):
            a, b = broadcast(weights, row + j), broadcast(weights, row + stride + j)
            c = broadcast(weights, row + 2 * stride + j)
            e = broadcast(weights, row + 3 * stride + j)
            here = place + j * size + d
            store(out, here, load(out, here) + a * x0 + b * x1 + c * x2 + e * x3)
            here += step
            store(out, here, load(out, here) + a * y0 + b * y1 + c * y2 + e * y3)
    if pairs < size:
        for i in range(4):
            x = load(source, at + i * size + pairs)
            for j in range(first, last):
                w = broadcast(weights, row + i * stride + j)
                add_to(out, place + j * size + pairs, w * x)
