"""Random attacks with a budget: short in `make test`, long in `make attack MINUTES=30`.

Each attempt gets a random generator of its own, whose seed is printed, so that a failure can be
repeated: REGARD_ATTACK_SEED=123 pytest tests/attack/test_x.py -k name
"""

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.training.conftest import configure, largest, nursery  # noqa: F401  fixtures

SECONDS = float(os.environ.get("REGARD_ATTACK_SECONDS", "0"))  # a test; 0: a few attempts
SEED = os.environ.get("REGARD_ATTACK_SEED")

Attempts = Callable[[int], Iterator[random.Random]]


@pytest.fixture
def attempts() -> Attempts:
    """`for rng in attempts(20)`: at least 20 attempts, and more while the budget lasts."""

    def generate(least: int) -> Iterator[random.Random]:
        if SEED is not None:
            yield random.Random(int(SEED))
            return
        end = time.monotonic() + SECONDS
        # the short budget tries the same cases everywhere, the long one new cases every time
        seed = random.SystemRandom().randrange(2**31) if SECONDS else 0
        count = 0
        while count < least or time.monotonic() < end:
            print(f"REGARD_ATTACK_SEED={seed + count}")
            yield random.Random(seed + count)
            count += 1

    return generate
