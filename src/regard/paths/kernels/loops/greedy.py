"""Greedy search of one sentence by a recurrent decoder, all steps in one loop.

A token is embedded, the layers take a step, one of their states attends to those of the encoder,
and the output gives the next token. All widths are multiples of the vector width.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .cell import gru, lstm
from .elementary import tanh_and_slope
from .rows import add_row, copy_row, dot_row, scale_row, softmax_row, weigh1
from .top import top_of_row
from .vector import lanes, load, store, total, zero

STATE, CONCATENATION, TANH, MAXOUT = range(4)  # how features are made
ROWS = 256  # logits that a thread computes at a time


@inner
def take_step(x, wide, into, at, layer, given, bias, given_bias, states, cells, gates, kept):
    """Replace the state of a layer, and its cell if it is an LSTM.

    x: the input, `wide` numbers; into, at: its matrix and the flat position of that
    given: the matrices of states; bias, given_bias: of inputs and of states, see `cell`
    gates, kept: room for what the cell computes
    """
    rows, hidden = given.shape[1:]
    place, matrix = layer * hidden, layer * rows * hidden
    dot_row(x, 0, into, at, wide, 0, rows, gates, 0)
    add_row(bias, layer * rows, 0, rows, gates, 0)
    own = given_bias[layer]
    if cells.size > 0:
        dot_row(states, place, given, matrix, hidden, 0, rows, gates, rows)
        lstm(gates, 0, gates, rows, own, hidden, cells, place, place, states, kept, 0)
    else:  # torch has the rows of n last, the cell first
        n = 2 * hidden
        dot_row(states, place, given, matrix, hidden, n, rows, gates, rows - n)
        dot_row(states, place, given, matrix, hidden, 0, n, gates, rows + hidden)
        gru(gates, 0, gates, rows, own, hidden, states, place, place, kept, 0)


@inner
def look(t, state, query, key, vector, value, weights, context):
    """Fill the context of a state, and row t of the weights."""
    keys, width = key.shape
    size, step = value.shape[1], lanes(key)
    row = np.empty(keys + step, key.dtype)
    if vector.size > 0:  # additive
        projected = np.empty(width, key.dtype)
        dot_row(state, 0, query, 0, query.shape[1], 0, width, projected, 0)
        for j in range(keys):
            sums = zero(key)
            for h in range(0, width, step):
                inside = load(projected, h) + load(key, j * width + h)
                sums = sums + load(vector, h) * tanh_and_slope(inside)[0]
            row[j] = total(sums)
    else:
        dot_row(state, 0, key, 0, width, 0, keys, row, 0)
    scale_row(row, 0, 0, keys, 1.0 / softmax_row(row, 0, 0, keys)[1])
    context[:] = 0.0
    weigh1(row, 0, value, 0, size, 0, keys, context, 0)
    copy_row(row, 0, 0, keys, weights, t * keys)


@inner
def make_features(kind, join, join_bias, joined, wide, features):
    """From what is joined, `wide` numbers, fill the features."""
    width = features.size
    if kind < TANH:
        copy_row(joined, 0, 0, width, features, 0)
        return
    rows = join.shape[0]
    products = np.empty(rows, joined.dtype)
    dot_row(joined, 0, join, 0, wide, 0, rows, products, 0)
    if kind == TANH:
        for j in range(0, width, lanes(features)):
            store(features, j, tanh_and_slope(load(products, j))[0])
    else:
        add_row(join_bias, 0, 0, rows, products, 0)
        for j in range(width):
            features[j] = np.maximum(products[2 * j], products[2 * j + 1])


@inner
def advance(token, row, embedding, scale, weights, stack, states, cells, attended, plan, rooms):
    """One step: from a token fill the features, states, cells and a row of the weights."""
    first, upper, given, bias, given_bias, join, join_bias = stack
    query, key, vector, value = attended
    attends, residual, kind, feeding = plan
    x, joined, current, gates, kept, context, features = rooms
    layers, rows, hidden = given.shape
    dim, size = embedding.shape[1], context.size
    for j in range(dim):
        x[j] = embedding[token, j] * scale
    if kind == MAXOUT:
        copy_row(x, 0, 0, dim, joined, hidden)
    if feeding:
        copy_row(features, 0, 0, features.size, x, dim)
    for layer in range(layers + 1):
        if layer == attends:
            if layer == 0:
                copy_row(states, (layers - 1) * hidden, 0, hidden, current, 0)
            look(row, current, query, key, vector, value, weights, context)
        if layer == layers:
            break
        into, wide, at, joins = first.reshape(-1), first.shape[1], 0, dim
        if layer > 0:
            into, wide, joins = upper.reshape(-1), upper.shape[2], hidden
            at = (layer - 1) * rows * wide
            copy_row(current, 0, 0, hidden, x, 0)
        if attends <= layer and wide > joins:
            copy_row(context, 0, 0, size, x, joins)
        take_step(x, wide, into, at, layer, given, bias, given_bias, states, cells, gates, kept)
        if layer < residual:
            copy_row(states, layer * hidden, 0, hidden, current, 0)
        else:
            add_row(states, layer * hidden, 0, hidden, current, 0)
    behind = 0 if kind in (STATE, MAXOUT) else size
    copy_row(current, 0, 0, hidden, joined, behind)
    if kind != STATE:
        copy_row(context, 0, 0, size, joined, hidden + dim if kind == MAXOUT else 0)
    make_features(kind, join, join_bias, joined, join.shape[1], features)


@kernel(
    "i8(T[:,::1], T[:,::1], T[:,:,::1], T[:,:,::1], T[:,::1], T[:,::1], T[:,::1], T[:,::1],"
    " T[:,::1], T[:,::1], T[::1], T[:,::1], T[:,::1], T[::1], T[:,::1], T[::1], i8[::1], f8, i8,"
    " i8, i8, b1, i8, i8, i8[::1], f8[::1], T[:,::1])"
)
def greedy(
    embedding, first, upper, given, bias, given_bias, states, cells, query, key, vector, value,
    join, join_bias, output, output_bias, banned, scale, attends, residual, kind, feeding, begin,
    end, tokens, scores, weights,
):  # fmt: skip
    """Fill tokens and their log-probabilities until the end token; return their number.

    embedding: (V, D), multiplied by `scale`
    first, upper: matrices of the input of the first layer, and of the L − 1 others
    given, bias, given_bias: of all layers, see `take_step`
    states, cells: (L, H), overwritten; no cells if the layers are GRUs
    query, key, vector, value: what is attended to; scores are vector · tanh(query state + key),
        and without a vector state · key
    join, join_bias: make features of what is joined, see `make_features`
    output, output_bias: (V, F) and (V,); banned: tokens that are not chosen
    attends: how many layers have taken their step when the state attends
    residual: the first layer that adds its input; feeding: whether features join the next input
    weights: (T, N); with T = 1 they are not kept
    """
    attended = query, key, vector, value
    stack = first, upper, given, bias, given_bias, join, join_bias
    plan = attends, residual, kind, feeding
    hidden, size, width = states.shape[1], value.shape[1], output.shape[1]
    widest = hidden + embedding.shape[1] + size + width
    x, joined = np.empty(widest, states.dtype), np.empty(widest, states.dtype)
    current, context = np.empty(hidden, states.dtype), np.empty(size, states.dtype)
    gates, kept = np.empty(2 * given.shape[1], states.dtype), np.empty(4 * hidden, states.dtype)
    features = np.zeros(width, states.dtype)
    rooms = x, joined, current, gates, kept, context, features
    logits, best = np.empty((1, len(output)), x.dtype), np.empty((1, 1), x.dtype)
    chosen, log_sum = np.empty((1, 1), np.int64), np.empty(1)
    token = begin
    for t in range(len(tokens)):
        row = min(t, len(weights) - 1)
        advance(token, row, embedding, scale, weights, stack, states, cells, attended, plan, rooms)
        for part in prange((len(output) + ROWS - 1) // ROWS):
            start = np.int64(part) * ROWS
            stop = min(start + ROWS, len(output))
            dot_row(features, 0, output, 0, width, start, stop, logits, 0)
            add_row(output_bias, 0, start, stop, logits, 0)
        top_of_row(0, logits, banned, best, chosen, log_sum)
        token = chosen[0, 0]
        tokens[t] = token
        scores[t] = np.float64(best[0, 0]) - log_sum[0]
        if token == end:
            return t + 1
    return len(tokens)
