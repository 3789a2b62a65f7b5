"""Noisy float frames that spell symbols: a stand-in for speech."""

import numpy as np

SYMBOLS = "abcdefgh"
FEATURES = 12
NOISE = 0.3


def signal(symbols: str, seed: int) -> np.ndarray:
    """Frames of a word: each symbol sounds for three to six frames, and noise covers all.

    A symbol is a fixed pattern of features; its first frame and its last are at half strength.

    >>> signal("bad", seed=0).shape[1]
    12

    Args:
        symbols: of the letters a to h
        seed: of the durations and the noise

    Returns: (length, 12) float32
    """
    draw = np.random.default_rng(seed)
    frames = []
    for symbol in symbols:
        number = SYMBOLS.index(symbol)
        phase = np.arange(FEATURES) * (number + 1)
        pattern = np.cos(2 * np.pi * phase / (2 * len(SYMBOLS) + 1))  # (features,)
        strength = np.ones(draw.integers(3, 7))
        strength[[0, -1]] = 0.5
        frames.append(strength[:, None] * pattern)
    clean = np.concatenate(frames)  # (length, features)
    return (clean + NOISE * draw.standard_normal(clean.shape)).astype(np.float32)
