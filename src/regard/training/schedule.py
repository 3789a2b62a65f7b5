"""How the learning rate goes up and down."""

import math
from collections.abc import Sequence

from regard.training.config import Training


def learning_rate(
    options: Training, step: int, *, last: int | None = None, lowered: int = 0
) -> float:
    """The learning rate of a step.

    A linear warm-up, and then, with t = step and w = warmup,

        constant      lr
        inverse_sqrt  lr · √(w / t)                            Vaswani et al. 2017, equation 3
        cosine        lr · ½ (1 + cos π (t − w) / (last − w))  Loshchilov & Hutter 2017, equation 5
        plateau       lr · lower_by ^ lowered

    Equation 3, d^−½ · min(t^−½, t · w^−3/2), is highest at t = w; here that height is `lr`.

    >>> options = Training(lr=0.1, schedule="inverse_sqrt", warmup=4, steps=100)
    >>> [round(learning_rate(options, step), 3) for step in (1, 2, 4, 16, 100)]
    [0.025, 0.05, 0.1, 0.05, 0.02]

    Args:
        step: counted from 1
        last: the last step, for cosine
        lowered: how often plateau has lowered it
    """
    warmup = options.warmup
    if step <= warmup:
        return options.lr * step / warmup
    match options.schedule:
        case "inverse_sqrt":
            return options.lr * math.sqrt(warmup / step)
        case "cosine":
            assert last is not None
            share = min(1.0, (step - warmup) / max(1, last - warmup))
            return options.lr * 0.5 * (1 + math.cos(math.pi * share))
        case "plateau":
            return options.lr * options.lower_by**lowered
        case _:
            return options.lr


def times_lowered(scores: Sequence[float], after: int) -> int:
    """How often a plateau has lowered the learning rate, larger scores being better.

    >>> times_lowered([1, 2, 2, 1, 2, 1, 3], after=2)
    2

    Args:
        scores: of the evaluations so far
        after: how many without improvement lower it; then counting begins anew
    """
    best, stale, lowered = -math.inf, 0, 0
    for score in scores:
        if score > best:
            best, stale = score, 0
            continue
        stale += 1
        if stale == after:
            lowered, stale = lowered + 1, 0
    return lowered
