"""What a step of a Transformer's decoder computes between its matrix products.

Keys and values of a position are one row, (key ; value), of all heads side by side. A table says
which rows each entry of the batch attends to, so that beams share the rows of their common
beginning, and nothing is copied when they are reordered.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .rows import copy_row, scale_row, softmax_row
from .vector import broadcast, lanes, load, store, total, totals4, zero


@inner
def score_rows(query, at, past, rows, count, offset, width, scores):
    """scores[j] = query · key of rows[j], for one head."""
    step, wide = lanes(query), past.shape[1]
    j = 0
    while count - j >= 4:
        k0, k1 = rows[j] * wide + offset, rows[j + 1] * wide + offset
        k2, k3 = rows[j + 2] * wide + offset, rows[j + 3] * wide + offset
        s0 = s1 = s2 = s3 = zero(query)
        for d in range(0, width, step):
            x = load(query, at + d)
            s0, s1 = s0 + x * load(past, k0 + d), s1 + x * load(past, k1 + d)
            s2, s3 = s2 + x * load(past, k2 + d), s3 + x * load(past, k3 + d)
        store(scores, j, totals4(s0, s1, s2, s3))
        j += 4
    for single in range(j, count):
        key = rows[single] * wide + offset
        sums = zero(query)
        for d in range(0, width, step):
            sums = sums + load(query, at + d) * load(past, key + d)
        store(scores, single, total(sums))


@inner
def weigh_rows(weights, past, rows, count, offset, width, out, to):
    """out = Σ_j weights[j] · value of rows[j], for one head."""
    step, wide = lanes(past), past.shape[1]
    pairs = width - width % (2 * step)
    for d in range(0, pairs, 2 * step):
        a = b = zero(past)
        for j in range(count):
            w, place = broadcast(weights, j), rows[j] * wide + offset + d
            a, b = a + w * load(past, place), b + w * load(past, place + step)
        store(out, to + d, a)
        store(out, to + d + step, b)
    for d in range(pairs, width, step):
        a = zero(past)
        for j in range(count):
            a = a + broadcast(weights, j) * load(past, rows[j] * wide + offset + d)
        store(out, to + d, a)


@inner
def attend_rows(query, at, past, rows, count, heads, scores, out, to, weights, row):
    """Fill the context of one query, at a position of `out`, and row `row` of the weights."""
    inner_dim = past.shape[1] // 2
    width = inner_dim // heads
    for head in range(heads):
        offset = head * width
        score_rows(query, at + offset, past, rows, count, offset, width, scores)
        scale_row(scores, 0, 0, count, 1.0 / softmax_row(scores, 0, 0, count)[1])
        weigh_rows(scores, past, rows, count, inner_dim + offset, width, out, to + offset)
        if weights.size > 0:
            for j in range(count):
                weights[row, head, j] = scores[j]
            weights[row, head, count:] = 0.0


@kernel("void(T[:,::1], T[:,::1], i8[:,::1], i8, i8, i8, T[:,::1])")
def attend_past(projected, past, rows, step, first, heads, out):
    """Append a step to the past of each entry, and attend to all of it.

    projected: (query ; key ; value) of the step, (E, 3 · inner)
    past: rows (key ; value), (R, 2 · inner); row `first` + e becomes that of entry e
    rows: the rows of each entry, (E, T); column `step` is written
    out: contexts, (E, inner)
    """
    inner_dim, no_weights = out.shape[1], np.empty((0, 0, 0), out.dtype)
    for entry in prange(out.shape[0]):
        e = np.int64(entry)
        copy_row(
            projected, e * 3 * inner_dim + inner_dim, 0, 2 * inner_dim,
            past, (first + e) * 2 * inner_dim,
        )  # fmt: skip
        rows[e, step] = first + e
        scores = np.empty(step + 1 + 2 * lanes(past), past.dtype)
        attend_rows(
            projected, e * 3 * inner_dim, past, rows[e], step + 1, heads,
            scores, out, e * inner_dim, no_weights, e,
        )  # fmt: skip


@kernel("void(T[:,::1], T[:,::1], i8[::1], i8[::1], i8, T[:,::1], T[:,:,::1])")
def attend_memory(query, memory, owner, lengths, heads, out, weights):
    """Attend to the memory of the sentence that each entry belongs to.

    query: (E, inner)
    memory: rows (key ; value), (sentences · N, 2 · inner)
    owner: the sentence of each entry, (E,)
    lengths: how many of the N rows of each sentence are real, (sentences,)
    out: contexts, (E, inner)
    weights: (E, heads, N), or empty
    """
    longest, inner_dim = memory.shape[0] // len(lengths), out.shape[1]
    for entry in prange(out.shape[0]):
        e = np.int64(entry)
        count = lengths[owner[e]]
        rows = owner[e] * longest + np.arange(count)
        scores = np.empty(count + 2 * lanes(memory), memory.dtype)
        attend_rows(
            query, e * inner_dim, memory, rows, count, heads,
            scores, out, e * inner_dim, weights, e,
        )  # fmt: skip


@inner
def add_norm_row(row, x, y, weight, bias, epsilon, out):
    dim, step = x.shape[1], lanes(x)
    at = row * dim
    sums = zero(x)
    for d in range(0, dim, step):
        both = load(x, at + d) + load(y, at + d)
        store(x, at + d, both)
        sums = sums + both
    mean = total(sums) / x.dtype.type(dim)
    squares = zero(x)
    for d in range(0, dim, step):
        centred = load(x, at + d) - mean
        squares = squares + centred * centred
    factor = x.dtype.type(1.0 / np.sqrt(np.float64(total(squares)) / dim + epsilon))
    for d in range(0, dim, step):
        normed = (load(x, at + d) - mean) * factor
        store(out, at + d, normed * load(weight, d) + load(bias, d))


@kernel("void(T[:,::1], T[:,::1], T[::1], T[::1], f8, T[:,::1])")
def add_norm(x, y, weight, bias, epsilon, out):
    """x += y, then out = the layer norm of x, (E, dim) each; out may be x."""
    for row in prange(x.shape[0]):
        add_norm_row(np.int64(row), x, y, weight, bias, epsilon, out)
