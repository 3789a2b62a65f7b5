"""Names of scores, normalizers and paths: found, or the nearest one suggested."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from regard.core.normalize import NORMALIZERS
from regard.core.score import SCORES, WITH_PARAMETERS, Score


def find_score(score: str | Score) -> Score:
    """A score by name, or the callable itself."""
    if not isinstance(score, str):
        if not callable(score):
            raise TypeError(
                "score must be a name or a callable (query, key) -> scores, got "
                f"{type(score).__name__}"
            )
        return score
    if score in SCORES:
        return SCORES[score]
    if score in WITH_PARAMETERS:
        raise ValueError(
            f"score {score!r} has parameters: pass score=regard.{WITH_PARAMETERS[score]}"
        )
    raise ValueError(f"unknown score {score!r}{did_you_mean(score, [*SCORES, *WITH_PARAMETERS])}")


def find_normalizer(normalize: str | Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A normalizer by name, or the callable itself."""
    if callable(normalize):
        return normalize
    if not isinstance(normalize, str):
        raise TypeError(
            "normalize must be a name or a callable (scores, mask) -> weights, got "
            f"{type(normalize).__name__}"
        )
    if normalize in NORMALIZERS:
        return NORMALIZERS[normalize]
    raise ValueError(f"unknown normalizer {normalize!r}{did_you_mean(normalize, NORMALIZERS)}")


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """How an error about an unknown name goes on.

    >>> did_you_mean("softmx", ["softmax", "hard"])
    "; did you mean 'softmax'? Known: softmax, hard"
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    listed = ", ".join(known)
    return f"; did you mean {close[0]!r}? Known: {listed}" if close else f"; known: {listed}"
