"""Decoders without attention, to compare with: all they know of the source is one vector."""

import torch
from torch import Tensor, nn

from regard.layers.dropout import drop
from regard.models.bridge import Bridge
from regard.models.embedding import Tokens
from regard.models.encoder import Encoder
from regard.models.memory import Maps, Memory
from regard.models.recurrent import Hidden, Recurrent
from regard.models.state import State


class Plain(nn.Module):
    """Start from the encoder's last state, and never look back. Sutskever et al. 2014.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5)
    >>> decoder = Plain(encoder, Tokens(17, 3), hidden=5)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> decoder(memory, torch.ones(2, 4, dtype=torch.long))[0].shape
    torch.Size([2, 4, 5])

    Args:
        encoder: from whose last state it starts; its kind of cell is the decoder's
        reader: the embedding of target tokens
        hidden: width of the states
        layers: number of recurrent layers
        residual: whether layers above the first add their input
        dropout: of the features and between layers, in train mode
    """

    peeks = False

    def __init__(
        self,
        encoder: Encoder,
        reader: Tokens,
        hidden: int,
        *,
        layers: int = 1,
        residual: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.bridge = Bridge(encoder, hidden, layers)
        peek = hidden if self.peeks else 0
        self.recurrent = Recurrent(
            reader.dim + peek,
            hidden,
            layers=layers,
            cell=encoder.cell,
            residual=residual,
            dropout=dropout,
        )
        self.width, self.dropout = hidden + peek, dropout

    def forward(
        self, memory: Memory, target: Tensor, *, return_map: bool = False
    ) -> tuple[Tensor, Maps]:
        """Teacher forced: features (batch, T, width) of target ids (batch, T); no maps."""
        hidden, peek = self._first(memory)
        if peek is not None:
            peek = peek.unsqueeze(1).expand(-1, target.shape[1], -1)
        output, _ = self.recurrent(_beside(self.reader(target), peek), hidden)
        return self._drop(_beside(output, peek)), {}

    def start(self, memory: Memory, *, return_map: bool = False) -> State:
        """The state before the first step; without attention there are no weights to ask for."""
        hidden, peek = self._first(memory)
        return State(hidden, None, peek, {} if return_map else None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features (batch, width) after reading tokens (batch,), and the new state."""
        now = _beside(self.reader(tokens.unsqueeze(1)).squeeze(1), state.fed)
        output, hidden = self.recurrent.step(now, state.hidden)
        return self._drop(_beside(output, state.fed)), state._replace(hidden=hidden)

    def _first(self, memory: Memory) -> tuple[Hidden, Tensor | None]:
        hidden = self.bridge(memory)
        return hidden, hidden[len(self.recurrent) - 1] if self.peeks else None

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


class Peeky(Plain):
    """`Plain`, but the encoder's last state joins every input and every output. Cho et al. 2014.

    What is joined is the first state of the top layer, as the bridge made it.
    """

    peeks = True


def _beside(x: Tensor, peek: Tensor | None) -> Tensor:
    return x if peek is None else torch.cat((x, peek), dim=-1)
