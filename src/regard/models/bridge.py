"""The bridge: a decoder's first state, made from the encoder's last."""

import torch
from torch import Tensor, nn

from regard.models.encoder import Encoder
from regard.models.memory import Memory
from regard.models.recurrent import Hidden


class Bridge(nn.Module):
    """The first state of a decoder: what the encoder ended with.

    If the encoder read in one direction and the widths agree, it is that state itself; if it read
    in both, a learned projection of both ends, s₀ = tanh(W [→h ; ←h] + b), after Bahdanau et al.
    2015, A.2.2, who take one of them. Layers are paired from the top; a decoder with more layers
    than the encoder starts the rest from the encoder's top.

    >>> from regard.models.embedding import Tokens
    >>> encoder = Encoder(Tokens(13, 3), 5, bidirectional="all")
    >>> bridge = Bridge(encoder, hidden=7, layers=2)
    >>> [tuple(part.shape) for part in bridge(encoder(torch.ones(2, 4, dtype=torch.long)))]
    [(2, 7), (2, 7)]

    Args:
        encoder: whose last states they are
        hidden: width of the decoder's layers
        layers: how many it has
    """

    def __init__(self, encoder: Encoder, hidden: int, layers: int = 1) -> None:
        super().__init__()
        theirs = len(encoder.layers)
        pairs = [min(max(theirs - layers, 0) + layer, theirs - 1) for layer in range(layers)]
        self.taken = [part * theirs + pair for part in range(encoder.parts) for pair in pairs]
        self.projections = nn.ModuleList(
            nn.Linear(encoder.widths[pair], hidden)
            if encoder.bidirectional[pair] or encoder.widths[pair] != hidden
            else nn.Identity()
            for _ in range(encoder.parts)
            for pair in pairs
        )

    def forward(self, memory: Memory) -> Hidden:
        """The decoder's state before its first step."""
        if memory.final is None:
            raise ValueError("this decoder starts from the encoder's last state: give memory.final")
        ends = [memory.final[index] for index in self.taken]
        return tuple(map(_projected, self.projections, ends))


def _projected(projection: nn.Module, state: Tensor) -> Tensor:
    return state if isinstance(projection, nn.Identity) else torch.tanh(projection(state))
