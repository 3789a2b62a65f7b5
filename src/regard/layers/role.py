"""The role of an attention module in its model, for traces and figures."""

from typing import NamedTuple


class AttentionRole(NamedTuple):
    """What an attention is called, and which sequences its rows and columns belong to.

    Models set `module.role` on their attention modules; without one, an attention is taken to
    be within a single sequence, the source.
    """

    name: str
    queries: str  # the sequence of the rows of its map: "source" or "target"
    keys: str  # the sequence of the columns


SELF = AttentionRole("self-attention", "source", "source")
MASKED_SELF = AttentionRole("masked self-attention", "source", "source")
ENCODER_SELF = AttentionRole("encoder self-attention", "source", "source")
DECODER_SELF = AttentionRole("masked decoder self-attention", "target", "target")
ENCODER_DECODER = AttentionRole("encoder–decoder attention", "target", "source")
