"""Random changes of JSON values."""

import random
from typing import Any

ESCAPE = "\x1b]52;c;x\x07"  # writes to the clipboard of a terminal
VALUES = (None, -1, 0, 3, 10**12, 0.5, "", "x", ESCAPE, [], [[]], {}, True, [1], "y" * 999)


def changed(value: Any, rng: random.Random) -> Any:
    """Return a copy of JSON with one value somewhere in it replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    return rng.choice(VALUES)
