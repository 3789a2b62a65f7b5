"""Which sentence the queries and the keys of a call belong to."""

from collections.abc import Sequence

CROSS = ("memory_attention", "cross", "encdec", "enc_dec", "encoder_attn", "multihead_attn")
"""What attention from one sentence to another is called, here and elsewhere."""


def sides(name: str, others: Sequence[str], *, aligns: bool = False) -> tuple[str, str]:
    """The token lists of a call's queries and keys, by its name among those of the model.

    A model of one sentence has a "source" only.

    >>> names = ["encoder.layers.0.attention", "decoder.layers.0.memory_attention"]
    >>> [sides(name, names) for name in names]
    [('source', 'source'), ('target', 'source')]

    Args:
        name: of the module
        others: the names of all modules of the model
        aligns: whether it is known to be attention from target to source
    """
    if not any("encoder" in other.lower() for other in others):
        return "source", "source"
    last = name.lower().rpartition("decoder")[2]
    if aligns or any(word in last for word in CROSS):
        return "target", "source"
    inside = "target" if "decoder" in name.lower() else "source"
    return inside, inside
