"""Scores by name for models, which know how wide queries and keys are."""

from collections.abc import Callable

from torch import nn

from regard.core.names import did_you_mean
from regard.core.score import (
    ActivatedGeneral,
    Additive,
    BiasedGeneral,
    Concat,
    Cosine,
    Dot,
    General,
    Location,
    ScaledDot,
    Score,
)

POSITIONS = 512
"""Source positions that a location score made by name can tell apart."""

SCORES: dict[str, Callable[[int, int], nn.Module]] = {
    "dot": lambda query_dim, key_dim: Dot(),
    "scaled_dot": lambda query_dim, key_dim: ScaledDot(),
    "cosine": lambda query_dim, key_dim: Cosine(),
    "general": General,
    "biased_general": BiasedGeneral,
    "activated_general": ActivatedGeneral,
    "additive": lambda query_dim, key_dim: Additive(query_dim, key_dim, query_dim),
    "concat": lambda query_dim, key_dim: Concat(query_dim, key_dim, query_dim),
    "location": lambda query_dim, key_dim: Location(query_dim, POSITIONS),
}
"""From query_dim and key_dim to a score with parameters of its own."""


def find_score(score: str | Callable, query_dim: int, key_dim: int) -> Score:
    """A score for queries and keys of these widths.

    >>> find_score("general", 3, 5).weight.shape
    torch.Size([3, 5])
    >>> find_score(lambda query_dim, key_dim: Additive(query_dim, key_dim, 7), 3, 5).vector.shape
    torch.Size([7])

    Args:
        score: a name, a module, or a function (query_dim, key_dim) -> score
    """
    if isinstance(score, nn.Module):
        return score
    if callable(score):
        return score(query_dim, key_dim)
    if score not in SCORES:
        raise ValueError(f"unknown score {score!r}{did_you_mean(score, SCORES)}")
    if score in ("dot", "scaled_dot", "cosine") and query_dim != key_dim:
        raise ValueError(
            f"score {score!r} needs the decoder's states as wide as the encoder's, but they are "
            f"{query_dim} and {key_dim} wide; choose hidden so, or score='general'"
        )
    return SCORES[score](query_dim, key_dim)
