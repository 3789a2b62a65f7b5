"""The largest numbers of each row and the logarithm of its summed exponentials, in two passes."""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .elementary import exponential
from .vector import at_least, lanes, largest, like, load, total, zero

CHUNK = 64  # numbers that share a maximum


@inner
def peak(row, first, last):
    """The largest number at flat positions [first, last)."""
    step = lanes(row)
    found = row.dtype.type(-np.inf)
    vectors = first + (last - first) // step * step
    if vectors > first:
        best = load(row, first)
        for place in range(first + step, vectors, step):
            best = at_least(best, load(row, place))
        found = largest(best)
    flat = row.reshape(-1)
    for place in range(vectors, last):
        found = max(found, flat[place])
    return found


@inner
def sum_of_exponentials(row, first, last, top):
    """Σ exp(x − top) over flat positions [first, last)."""
    step = lanes(row)
    vectors = first + (last - first) // step * step
    sums = zero(row)
    for place in range(first, vectors, step):
        x = load(row, place)
        sums = sums + exponential(x - like(x, top))
    found = np.float64(total(sums))
    flat = row.reshape(-1)
    for place in range(vectors, last):
        found += np.exp(flat[place] - top)
    return found


@inner
def top_of_row(r, logits, banned, best, tokens, log_sum):
    width = logits.shape[1]
    start, chunks = r * width, -(-width // CHUNK)
    peaks = np.empty(chunks, logits.dtype)
    for chunk in range(chunks):
        first = start + chunk * CHUNK
        peaks[chunk] = peak(logits, first, min(first + CHUNK, start + width))
    top = peaks.max()
    log_sum[r] = np.float64(top) + np.log(sum_of_exponentials(logits, start, start + width, top))
    for token in banned:
        logits[r, token] = -np.inf
    for token in banned:
        first = token // CHUNK * CHUNK
        peaks[token // CHUNK] = peak(logits, start + first, start + min(first + CHUNK, width))
    for place in range(tokens.shape[1]):
        highest = np.argmax(peaks)
        begin, end = highest * CHUNK, min((highest + 1) * CHUNK, width)
        winner = begin + np.argmax(logits[r, begin:end])
        best[r, place], tokens[r, place] = logits[r, winner], winner
        logits[r, winner] = -np.inf
        peaks[highest] = peak(logits, start + begin, start + end)


@kernel("void(T[:,::1], i8[::1], T[:,::1], i8[:,::1], f8[::1])")
def top(logits, banned, best, tokens, log_sum):
    """Fill best and tokens (R, count), in descending order, and log_sum (R,).

    logits: (R, V), overwritten; banned: columns that are not among the best
    """
    for r in prange(logits.shape[0]):
        top_of_row(np.int64(r), logits, banned, best, tokens, log_sum)
