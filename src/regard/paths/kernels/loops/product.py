"""Four rows times a matrix. Importing this imports numba."""

from ..compile import inner
from .vector import broadcast, lanes, load, store, zero

ROWS = 4


@inner
def multiply(rows, depth, packed, out):
    """out = rows · W for four rows of `depth`; W in blocks of columns, (blocks, depth, width)."""
    step, width = lanes(rows), packed.shape[2]
    columns = packed.shape[0] * width
    place = 0
    for column in range(0, columns, width):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero(rows)
        c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = zero(rows)
        for k in range(depth):
            w0, w1 = load(packed, place), load(packed, place + step)
            w2, w3 = load(packed, place + 2 * step), load(packed, place + 3 * step)
            x = broadcast(rows, k)
            a0, a1, a2, a3 = a0 + x * w0, a1 + x * w1, a2 + x * w2, a3 + x * w3
            x = broadcast(rows, depth + k)
            b0, b1, b2, b3 = b0 + x * w0, b1 + x * w1, b2 + x * w2, b3 + x * w3
            x = broadcast(rows, 2 * depth + k)
            c0, c1, c2, c3 = c0 + x * w0, c1 + x * w1, c2 + x * w2, c3 + x * w3
            x = broadcast(rows, 3 * depth + k)
            d0, d1, d2, d3 = d0 + x * w0, d1 + x * w1, d2 + x * w2, d3 + x * w3
            place += width
        write4(out, column, step, a0, a1, a2, a3)
        write4(out, columns + column, step, b0, b1, b2, b3)
        write4(out, 2 * columns + column, step, c0, c1, c2, c3)
        write4(out, 3 * columns + column, step, d0, d1, d2, d3)


@inner
def write4(out, at, step, a, b, c, d):
    store(out, at, a)
    store(out, at + step, b)
    store(out, at + 2 * step, c)
    store(out, at + 3 * step, d)
