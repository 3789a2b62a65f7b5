"""Generated datasets of pairs: dates, reverse, copy, addition, signal."""

import random
import zlib
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import cache
from typing import NamedTuple

import numpy as np

from regard.core.names import check_name
from regard.data import dates
from regard.data.pairs import Pair, Pairs

SPLITS = ("train", "valid", "test")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = "abcdefgh"
FEATURES = 12
NOISE = 0.3


def split_of(text: str) -> str:
    """The split of a text, by a checksum: one in twenty is for validation, one for test.

    It depends on nothing else: splits of any size and seed have no text in common.

    >>> split_of("1994-09-27")
    'train'
    """
    return {0: "test", 1: "valid"}.get(zlib.crc32(text.encode()) % 20, "train")


@cache
def _dates(split: str) -> list[date]:
    days = (dates.FIRST + timedelta(n) for n in range((dates.LAST - dates.FIRST).days + 1))
    return [day for day in days if split_of(day.isoformat()) == split]


def _date(rng: random.Random, split: str) -> Pair:
    day = rng.choice(_dates(split))
    return rng.choice(dates.WAYS)(day), day.isoformat()


def _word(rng: random.Random, split: str, letters: str, shortest: int, longest: int) -> str:
    while True:
        word = "".join(rng.choices(letters, k=rng.randint(shortest, longest)))
        if split_of(word) == split:
            return word


def _copy(rng: random.Random, split: str) -> Pair:
    word = _word(rng, split, LETTERS, 3, 12)
    return word, word


def _reverse(rng: random.Random, split: str) -> Pair:
    word = _word(rng, split, LETTERS, 3, 12)
    return word, word[::-1]


def _addition(rng: random.Random, split: str) -> Pair:
    while True:
        left, right = rng.randint(0, 999), rng.randint(0, 999)
        # 3+5 and 5+3 are the same sum and in the same split
        if split_of("{}+{}".format(*sorted((left, right)))) == split:
            return f"{left}+{right}", str(left + right)


def _signal(rng: random.Random, split: str) -> Pair:
    word = _word(rng, split, SYMBOLS, 3, 8)
    return signal(word, rng.getrandbits(63)), " ".join(word)


class Generated(NamedTuple):
    """A generated dataset."""

    about: str
    draw: Callable[[random.Random, str], Pair]
    source: str | None  # kind of the source tokenizer; None for frames
    target: str  # kind of the target tokenizer


GENERATED = {
    "dates": Generated(
        f"{len(dates.WAYS)} English and Korean date formats → ISO 8601, 1900–2099",
        _date,
        "characters",
        "characters",
    ),
    "reverse": Generated("letters → the letters reversed", _reverse, "characters", "characters"),
    "copy": Generated("letters → the same letters", _copy, "characters", "characters"),
    "addition": Generated(
        "a sum of two numbers → its value", _addition, "characters", "characters"
    ),
    "signal": Generated("noisy float frames → the symbols they encode", _signal, None, "phonemes"),
}


def generate(name: str, split: str = "train", *, count: int, seed: int = 0) -> Pairs:
    """Generate pairs; the same name, split, count and seed give the same pairs.

    >>> list(generate("reverse", "test", count=2, seed=1))[0]
    ('...', '...')
    >>> generate("dates", count=3, seed=5)[0][1][4]
    '-'

    Args:
        name: "dates", "reverse", "copy", "addition" or "signal"
        split: "train", "valid" or "test"; they never share a source, whatever the seed
        count: number of pairs
        seed: a larger count continues the pairs of a smaller one
    """
    check_name("dataset", name, GENERATED)
    check_split(split)
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    rng = random.Random(f"{name} {split} {seed}")

    def rows() -> Iterator[Pair]:
        for _ in range(count):
            yield GENERATED[name].draw(rng, split)

    return Pairs.collect(rows())


def check_split(split: str) -> None:
    """Raise `ValueError` for an unknown split."""
    check_name("split", split, SPLITS)


def signal(symbols: str, seed: int) -> np.ndarray:
    """Noisy frames of a word: a stand-in for speech. Each symbol lasts three to six frames.

    A symbol is a fixed pattern of features; its first and last frames have half the amplitude.

    >>> signal("bad", seed=0).shape[1]
    12

    Args:
        symbols: of the letters a to h
        seed: of the durations and the noise

    Returns: (length, 12) float32
    """
    rng = np.random.default_rng(seed)
    frames = []
    for symbol in symbols:
        number = SYMBOLS.index(symbol)
        phase = np.arange(FEATURES) * (number + 1)
        pattern = np.cos(2 * np.pi * phase / (2 * len(SYMBOLS) + 1))  # (features,)
        strength = np.ones(rng.integers(3, 7))
        strength[[0, -1]] = 0.5
        frames.append(strength[:, None] * pattern)
    clean = np.concatenate(frames)  # (length, features)
    return (clean + NOISE * rng.standard_normal(clean.shape)).astype(np.float32)
