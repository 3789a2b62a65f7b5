"""What a mechanism costs here and now, beside torch's own attention."""

import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

LENGTH, WIDTH = 512, 64


def cost(run: Callable[[], object]) -> str:
    """A sentence on the time of one forward pass, and its ratio to torch's SDPA in this run."""
    x = torch.randn(1, 1, LENGTH, WIDTH)
    with torch.no_grad():
        ours, theirs = _race(run, lambda: F.scaled_dot_product_attention(x, x, x))
    return (
        f"{_plain(1000 * ours)} ms for {LENGTH} × {LENGTH}, {WIDTH} wide: "
        f"{_plain(ours / theirs)} × the time of torch's dense attention"
    )


def _plain(number: float) -> str:
    """Two digits, without an exponent.

    >>> _plain(0.0234), _plain(123.4)
    ('0.023', '123')
    """
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def _race(*jobs: Callable[[], object]) -> list[float]:
    """The best of five times for each job, taken in turns."""
    for job in jobs:
        job()
    best = [float("inf")] * len(jobs)
    for _ in range(5):
        for place, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            best[place] = min(best[place], time.perf_counter() - start)
    return best
