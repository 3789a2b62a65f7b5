"""The one small input of the gallery: a sentence and its translation, as vectors.

Bahdanau et al. 2015 showed their first alignment on this pair (figure 3a). A word and its
translation get nearly the same vector here, so that a score can find the pairs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

SOURCE = (
    "the", "agreement", "on", "the", "European", "Economic", "Area", "was", "signed", "in",
    "August", "1992", ".",
)  # fmt: skip
TARGET = (
    "l'", "accord", "sur", "la", "zone", "économique", "européenne", "a", "été", "signé", "en",
    "août", "1992", ".",
)  # fmt: skip
PARTNER = (0, 1, 2, 3, 6, 5, 4, 7, 7, 8, 9, 10, 11, 12)
"""For each target word, the place of the source word it translates."""

WIDTH = 32


class Words(NamedTuple):
    """Vectors of the source words (N, WIDTH) and the target words (M, WIDTH)."""

    source: Tensor
    target: Tensor


def words() -> Words:
    """The same vectors every time."""
    generator = torch.Generator().manual_seed(4)
    source = torch.randn(len(SOURCE), WIDTH, generator=generator)
    noise = torch.randn(len(TARGET), WIDTH, generator=generator)
    return Words(source, source[list(PARTNER)] * 0.9 + 0.45 * noise)
