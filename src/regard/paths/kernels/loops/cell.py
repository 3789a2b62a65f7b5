"""One row of a recurrent cell, GRU or LSTM, and its gradient. Importing this imports numba.

Each function takes arrays with the flat position at which its row starts. Sizes are whole vectors.
The inputs x come in torch's order of gates: r z n, or i f g o. What a state gives to them, and its
bias, come in the order n r z, or i f g o; so do, in four parts of H, what is kept and its slopes:
m r z n, where m is what the state gave to n, or i f g o. Thus the last parts are those of x, and
the first those of the state.
"""

from ..compile import inner
from .elementary import exponential, reciprocal, tanh_and_slope
from .vector import lanes, load, store, zero


@inner
def sigmoid(x):
    return reciprocal(exponential(x * -1.0) + 1.0)


@inner
def gru(x, at, given, to, bias, hidden, states, before, after, kept, base):
    """h' = (1 − z) n + z h with n = tanh(x + r m)."""
    second, third, fourth = hidden, 2 * hidden, 3 * hidden
    for j in range(0, hidden, lanes(x)):
        m = load(given, to + j) + load(bias, j)
        r = load(given, to + second + j) + load(bias, second + j)
        z = load(given, to + third + j) + load(bias, third + j)
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
    """From grad, of h', the slopes; what of it goes straight to h stays in grad."""
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
def lstm(x, at, given, to, bias, hidden, cells, before, after, states, kept, base):
    """c' = f c + i g and h' = o tanh(c')."""
    second, third, fourth = hidden, 2 * hidden, 3 * hidden
    for j in range(0, hidden, lanes(x)):
        i = load(given, to + j) + load(bias, j) + load(x, at + j)
        f = load(given, to + second + j) + load(bias, second + j) + load(x, at + second + j)
        g = load(given, to + third + j) + load(bias, third + j) + load(x, at + third + j)
        o = load(given, to + fourth + j) + load(bias, fourth + j) + load(x, at + fourth + j)
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
