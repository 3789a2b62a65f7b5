"""Mechanisms without a model: the words of a text attend to each other."""

import time
import unicodedata

import torch
from torch import Tensor

from regard.core.normalize import NORMALIZERS
from regard.studio.free import MASKS, Way, find_score, steps
from regard.studio.messages import Looked, MechanismName, NormalizerName

MOST_WORDS = 32
# score, mask and normalizer
MECHANISMS: dict[MechanismName, tuple[str, str, NormalizerName]] = {
    "score-dot": ("dot", "none", "softmax"),
    "score-scaled_dot": ("scaled_dot", "none", "softmax"),
    "score-cosine": ("cosine", "none", "softmax"),
    "score-additive": ("additive", "none", "softmax"),
    "mask-causal": ("scaled_dot", "causal", "softmax"),
    "mask-window": ("scaled_dot", "window", "softmax"),
    "normalizer-sparsemax": ("scaled_dot", "none", "sparsemax"),
    "normalizer-entmax15": ("scaled_dot", "none", "entmax15"),
    "normalizer-hard": ("scaled_dot", "none", "hard"),
    "normalizer-sigmoid": ("scaled_dot", "none", "sigmoid"),
    "normalizer-sink": ("scaled_dot", "none", "sink"),
}


def attend_words(name: MechanismName, text: str) -> Looked:
    """Return how the words of a text attend to each other by a mechanism.

    Raises:
        ValueError: if there are not two words, or too many
    """
    words = text.split()
    if not 2 <= len(words) <= MOST_WORDS:
        raise ValueError(
            f"a mechanism takes a text of 2 to {MOST_WORDS} words, got {len(words)}: words are "
            "separated by spaces"
        )
    start, vectors = time.perf_counter(), word_vectors(words)
    score, mask, normalizer = MECHANISMS[name]
    way = Way(find_score(score, vectors.shape[1]), MASKS[mask], NORMALIZERS[normalizer], 1.0)
    found = steps(vectors, vectors, vectors, way, (name, "word", "word"), {"word": words})
    return Looked(
        task="attend",
        text=text,
        output="",
        candidates=[],
        words=[],
        has_picture=False,
        page=found.page,
        milliseconds=1000 * (time.perf_counter() - start),
    )


def word_vectors(words: list[str]) -> Tensor:
    """Return a vector (words, letters) of length √letters for each word, by its letters.

    Words that share letters are alike. Syllables of Hangul are taken apart.

    >>> a, b, c = word_vectors(["stop", "post", "ab"])
    >>> bool((a == b).all()), float(a @ c)
    (True, 0.0)
    """
    spelled = [unicodedata.normalize("NFD", word.lower()) for word in words]
    letters = sorted(set("".join(spelled)))
    counts = torch.tensor([[float(word.count(letter)) for letter in letters] for word in spelled])
    return counts / counts.norm(dim=1, keepdim=True) * len(letters) ** 0.5
