"""Scores, positions, self-attentions and norms by name, for models that know their widths."""

from collections.abc import Callable

from torch import nn

from regard.core.names import build_score, check_name, did_you_mean, find_name
from regard.core.score import SCORES, Score
from regard.layers.efficient import EfficientAttention
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.position import ALiBi, Learned, Position, PositionalEncoding, RelativeBias
from regard.layers.rotary import Rotary
from regard.layers.transformer import PostNorm, PreNorm, SelfAttention

SELF_ATTENTIONS: dict[str, SelfAttention] = {
    "dot": MultiHeadAttention,  # quadratic in the number of positions
    "efficient": EfficientAttention,  # linear
}
"""From (dim, heads) to a self-attention."""

NORMS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}
"""Where a Transformer layer normalizes."""

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")


def score_between(score: str | Callable, query_dim: int, key_dim: int) -> Score:
    """A score for queries and keys of these widths.

    >>> score_between("general", 3, 5).weight.shape
    torch.Size([3, 5])
    >>> from regard.core.score import Additive
    >>> score_between(lambda query_dim, key_dim: Additive(query_dim, key_dim, 7), 3, 5).vector.shape
    torch.Size([7])

    Args:
        score: a name, a module, or a function (query_dim, key_dim) -> score
    """
    if isinstance(score, nn.Module):
        return score
    if callable(score):
        return score(query_dim, key_dim)
    if find_name(score, SCORES) and query_dim != key_dim:
        raise ValueError(
            f"score {score!r} needs decoder states as wide as the encoder's, got {query_dim} and "
            f"{key_dim}; choose hidden accordingly, bidirectional='none', or score='general'"
        )
    return build_score(score, query_dim, key_dim)


def find_self_attention(name: str) -> SelfAttention:
    """What makes a self-attention from its width and its number of heads.

    >>> find_self_attention("efficient")(12, 3)._get_name()
    'EfficientAttention'
    """
    check_name("attention", name, SELF_ATTENTIONS)
    return SELF_ATTENTIONS[name]


def find_norm(norm: str) -> type[PostNorm]:
    """The Add & Norm of a Transformer layer: "post" or "pre"."""
    check_name("norm", norm, NORMS)
    return NORMS[norm]


def find_positions(
    name: str, dim: int, heads: int, max_length: int, *, causal: bool = False
) -> tuple[Position, Position | None]:
    """The position added to embeddings, and the one given to every self-attention.

    >>> find_positions("sinusoidal", 12, 3, 64)
    (PositionalEncoding(12, max_wavelength=10000), None)
    >>> find_positions("rotary", 12, 3, 64)
    (Position(), Rotary(4, base=10000))

    Args:
        name: "sinusoidal", "learned", "rotary", "alibi", "relative" or "none"
        dim: width of the embeddings
        heads: number of heads
        max_length: number of learned positions
        causal: whether later positions are hidden, so that "relative" needs no buckets for them
    """
    if name == "sinusoidal":
        return PositionalEncoding(dim), None
    if name == "learned":
        return Learned(dim, max_length), None
    if name == "rotary":
        return Position(), Rotary(dim // heads)
    if name == "alibi":
        return Position(), ALiBi(heads)
    if name == "relative":
        return Position(), RelativeBias(heads, bidirectional=not causal)
    if name == "none":
        return Position(), None
    raise ValueError(f"unknown position {name!r}{did_you_mean(name, POSITIONS)}")
