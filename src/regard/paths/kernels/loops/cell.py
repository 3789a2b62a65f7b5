"""One step of a recurrent cell, GRU or LSTM: a matrix product, the gates and their gradients.

Each function takes arrays with the flat position at which its row starts. Sizes are multiples of
the vector width. The inputs x come in torch's order of gates: r z n, or i f g o. A state's part of
them, and its bias, come in the order n r z, or i f g o. What is kept for backward, and its slopes,
have four parts of H: m r z n, where m is the state's part of n, or i f g o. Thus the last parts
are those of x and the first those of the state.
"""

from ..compile import inner
from .elementary import exponential, reciprocal, tanh_and_slope
from .vector import broadcast, lanes, load, store, zero

ROWS = 4  # rows that `multiply` takes


@inner
def sigmoid(x):
    return reciprocal(exponential(x * -1.0) + 1.0)


@inner
def gru(x, at, projected, to, bias, hidden, states, before, after, kept, base):
    """h' = (1 − z) n + z h with n = tanh(x + r m)."""
    second, third, fourth = hidden, 2 * hidden, 3 * hidden
    for j in range(0, hidden, lanes(x)):
        m = load(projected, to + j) + load(bias, j)
        r = load(projected, to + second + j) + load(bias, second + j)
        z = load(projected, to + third + j) + load(bias, third + j)
        r = sigmoid(r + load(x, at + j))
        z = sigmoid(z + load(x, at + second + j))
        n, _ = tanh_and_slope(load(x, at + third + j) + r * m)
        store(kept, base + j, m)
        store(kept, base + second + j, r)
        store(kept, base + third + j, z)
        store(kept, base + fourth + j, n)
        store(states, after + j, n + z * (load(states, before + j) - n))


@inner
def gru_slopes(kept, base, hidden, states, before, grad, row, slopes):
    """From grad, of h', the slopes; its direct part, that of h, stays in grad."""
    second, third, fourth = base + hidden, base + 2 * hidden, base + 3 * hidden
    for j in range(0, hidden, lanes(kept)):
        m, r = load(kept, base + j), load(kept, second + j)
        z, n = load(kept, third + j), load(kept, fourth + j)
        g = load(grad, row + j)
        new = g * (1.0 - z) * (1.0 - n * n)
        store(slopes, base + j, new * r)
        store(slopes, second + j, new * m * r * (1.0 - r))
        store(slopes, third + j, g * (load(states, before + j) - n) * z * (1.0 - z))
        store(slopes, fourth + j, new)
        store(grad, row + j, g * z)


@inner
def lstm(x, at, projected, to, bias, hidden, cells, before, after, states, kept, base):
    """c' = f c + i g and h' = o tanh(c')."""
    second, third, fourth = hidden, 2 * hidden, 3 * hidden
    for j in range(0, hidden, lanes(x)):
        i = load(projected, to + j) + load(bias, j) + load(x, at + j)
        f = load(projected, to + second + j) + load(bias, second + j) + load(x, at + second + j)
        g = load(projected, to + third + j) + load(bias, third + j) + load(x, at + third + j)
        o = load(projected, to + fourth + j) + load(bias, fourth + j) + load(x, at + fourth + j)
        i, f, o = sigmoid(i), sigmoid(f), sigmoid(o)
        g, _ = tanh_and_slope(g)
        c = f * load(cells, before + j) + i * g
        store(kept, base + j, i)
        store(kept, base + second + j, f)
        store(kept, base + third + j, g)
        store(kept, base + fourth + j, o)
        store(cells, after + j, c)
        store(states, after + j, o * tanh_and_slope(c)[0])


@inner
def lstm_slopes(kept, base, hidden, cells, before, after, grad, cell_grad, row, slopes):
    """From grad and cell_grad, of h' and c', the slopes; cell_grad becomes that of c."""
    second, third, fourth = base + hidden, base + 2 * hidden, base + 3 * hidden
    for j in range(0, hidden, lanes(kept)):
        i, f = load(kept, base + j), load(kept, second + j)
        g, o = load(kept, third + j), load(kept, fourth + j)
        t, quarter = tanh_and_slope(load(cells, after + j))
        above = load(grad, row + j)
        c = load(cell_grad, row + j) + above * o * quarter * 4.0
        store(slopes, base + j, c * g * i * (1.0 - i))
        store(slopes, second + j, c * load(cells, before + j) * f * (1.0 - f))
        store(slopes, third + j, c * i * (1.0 - g * g))
        store(slopes, fourth + j, above * t * o * (1.0 - o))
        store(cell_grad, row + j, c * f)
        store(grad, row + j, zero(grad))


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
