"""Position schemes by name, for models that know their widths."""

from regard.core.names import did_you_mean
from regard.layers.position import ALiBi, Learned, Position, PositionalEncoding, Rotary

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "none")


def positions(name: str, dim: int, heads: int, max_length: int) -> tuple[Position, Position | None]:
    """What is added to the embeddings, and what every self-attention is given.

    >>> positions("sinusoidal", 12, 3, 64)
    (PositionalEncoding(12, max_wavelength=10000), None)
    >>> positions("rotary", 12, 3, 64)
    (Position(), Rotary(4, base=10000))

    Args:
        name: "sinusoidal", "learned", "rotary", "alibi" or "none"
        dim: width of the stream
        heads: number of heads
        max_length: how many learned positions there are
    """
    if name == "sinusoidal":
        return PositionalEncoding(dim), None
    if name == "learned":
        return Learned(dim, max_length), None
    if name == "rotary":
        return Position(), Rotary(dim // heads)
    if name == "alibi":
        return Position(), ALiBi(heads)
    if name == "none":
        return Position(), None
    raise ValueError(f"unknown position {name!r}{did_you_mean(name, POSITIONS)}")
