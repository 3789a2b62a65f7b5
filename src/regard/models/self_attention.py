"""How the positions of one sequence attend to each other, by name."""

from regard.core.names import did_you_mean
from regard.layers.efficient import EfficientAttention
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.transformer import SelfAttention

SELF_ATTENTIONS: dict[str, SelfAttention] = {
    "dot": MultiHeadAttention,  # quadratic in the number of positions
    "efficient": EfficientAttention,  # linear
}
"""Made from (dim, heads)."""


def find_self_attention(name: str) -> SelfAttention:
    """What makes a self-attention from its width and its number of heads.

    >>> find_self_attention("efficient")(12, 3)._get_name()
    'EfficientAttention'

    Raises:
        ValueError: for an unknown name, with the nearest known one
    """
    if name not in SELF_ATTENTIONS:
        raise ValueError(f"unknown attention {name!r}{did_you_mean(name, SELF_ATTENTIONS)}")
    return SELF_ATTENTIONS[name]
