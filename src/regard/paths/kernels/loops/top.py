"""The largest logits of an entry and the logarithm of its summed exponentials, in two passes.

Entries are the rows of the logits, or their columns: then neighbours share a vector.
"""

import numpy as np
from numba import prange

from ..compile import inner, kernel
from .elementary import exponential
from .vector import at_least, lanes, largest, like, load, store, total, zero

CHUNK = 64  # numbers of a row that share a maximum
SHORT = 16  # numbers of a column that share a maximum


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


@inner
def column_peaks(c, logits, first, last):
    """The largest numbers at rows [first, last), of each column from c on."""
    width = logits.shape[1]
    best = load(logits, first * width + c)
    for row in range(first + 1, last):
        best = at_least(best, load(logits, row * width + c))
    return best


@inner
def keep_largest(value, number, values, numbers):
    """Insert a value and its number into descending ones if it is large enough; ties stay first."""
    place = len(values)
    while place > 0 and value > values[place - 1]:
        place -= 1
        if place + 1 < len(values):
            values[place + 1], numbers[place + 1] = values[place], numbers[place]
    if place < len(values):
        values[place], numbers[place] = value, number


@inner
def top_of_columns(c, logits, banned, best, tokens, log_sum):
    """As many entries as a vector has lanes, from column c on."""
    words, width = logits.shape
    step, chunks = lanes(logits), -(-words // SHORT)
    peaks = np.empty((chunks, step), logits.dtype)
    top = load(logits, c)
    for chunk in range(chunks):
        high = column_peaks(c, logits, chunk * SHORT, min((chunk + 1) * SHORT, words))
        store(peaks, chunk * step, high)
        top = at_least(top, high)
    sums = zero(logits)
    for row in range(words):
        sums = sums + exponential(load(logits, row * width + c) - top)
    tops, masses = np.empty(step, logits.dtype), np.empty(step, logits.dtype)
    store(tops, 0, top)
    store(masses, 0, sums)
    for token in banned:
        logits[token, c : c + step] = -np.inf
    for token in banned:
        chunk = token // SHORT
        high = column_peaks(c, logits, chunk * SHORT, min((chunk + 1) * SHORT, words))
        store(peaks, chunk * step, high)
    highest, numbers = np.empty(best.shape[1], best.dtype), np.empty(best.shape[1], np.int64)
    for lane in range(min(step, len(best) - c)):
        entry = c + lane
        log_sum[entry] = np.float64(tops[lane]) + np.log(np.float64(masses[lane]))
        highest[:], numbers[:] = -np.inf, -1
        for chunk in range(chunks):  # the largest numbers are in the chunks with the largest peaks
            keep_largest(peaks[chunk, lane], chunk, highest, numbers)
        numbers.sort()
        best[entry], tokens[entry] = -np.inf, 0
        for chunk in numbers:
            for row in range(max(0, chunk * SHORT), min((chunk + 1) * SHORT, words)):
                keep_largest(logits[row, entry], row, best[entry], tokens[entry])


@kernel("void(T[:,::1], i8[::1], T[:,::1], i8[:,::1], f8[::1])")
def top_by_columns(logits, banned, best, tokens, log_sum):
    """The same for logits (V, C), where C is a multiple of the vector width and at least R."""
    step = lanes(logits)
    for part in prange(logits.shape[1] // step):
        top_of_columns(np.int64(part) * step, logits, banned, best, tokens, log_sum)
