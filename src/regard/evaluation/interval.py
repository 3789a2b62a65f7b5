"""How sure a figure is: what it would be for other sentences like these."""

from typing import NamedTuple

import numpy as np

from regard.evaluation.rates import Rate

SAMPLES = 1000
SHARE = 0.95


class Figure(NamedTuple):
    """A measured value and the interval that holds 95 % of its resampled values."""

    value: float
    low: float
    high: float


def resampled(rate: Rate, *, samples: int = SAMPLES, seed: int = 12345) -> Figure:
    """A rate with its bootstrap interval: sentences are drawn again, with replacement. Koehn 2004.

    >>> resampled(Rate(np.array([0.0, 1.0, 1.0, 1.0]), np.ones(4)))
    Figure(value=0.75, low=0.25, high=1.0)

    Args:
        rate: sums of each sentence
        samples: how often they are drawn
        seed: of the draws
    """
    count = len(rate.parts)
    if count == 0:
        return Figure(0.0, 0.0, 0.0)
    draw = np.random.default_rng(seed)
    values = np.empty(samples)
    for start in range(0, samples, 64):  # a few at a time: memory does not grow with the samples
        size = min(64, samples - start)
        index = draw.integers(0, count, (size, count))
        whole = rate.wholes[index].sum(1)
        part = rate.parts[index].sum(1)
        values[start : start + size] = np.divide(part, whole, np.zeros(size), where=whole > 0)
    edge = (1 - SHARE) / 2
    low, high = np.quantile(values, (edge, 1 - edge))
    return Figure(rate.value, float(low), float(high))
