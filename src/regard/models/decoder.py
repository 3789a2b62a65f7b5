"""What recurrent decoders share: the first state, the steps; and decoders without attention."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.layers.cache import Past, SharedMemory
from regard.layers.dropout import Dropout
from regard.layers.reorder import BatchReorder, as_reorder
from regard.models.aligner import Aligner
from regard.models.embedding import Tokens
from regard.models.memory import Memory
from regard.models.recurrent import Encoder, Hidden, Recurrent


class State(NamedTuple):
    """State of a recurrent decoder between two steps; a step returns a new one."""

    hidden: Hidden  # of the recurrent layers
    memory: Past | SharedMemory | None  # what is attended to, held once for all beams
    fed: Tensor | None  # (batch, width), what else joins the next input

    def reorder(self, index: Tensor | BatchReorder) -> "State":
        """The state of other beams: entry i becomes what entry index[i] was."""
        order = as_reorder(index, len(self.hidden[0]))
        return State(
            tuple(part.index_select(0, order.index) for part in self.hidden),
            None if self.memory is None else self.memory.reorder(order),
            None if self.fed is None else self.fed.index_select(0, order.index),
        )


class Bridge(nn.Module):
    """The first state of a decoder, from the last state of the encoder.

    Of an encoder layer of one direction and the same width it is that state itself; otherwise a
    learned projection, s₀ = tanh(W [→h ; ←h] + b), after Bahdanau et al. 2015, A.2.2, who project
    the backward one. Layers are paired from the top; a decoder with more layers than the encoder
    starts the rest from the encoder's top.

    >>> encoder = Encoder(Tokens(13, 3), 5, bidirectional="all")
    >>> bridge = Bridge(encoder, hidden=7, layers=2)
    >>> [tuple(part.shape) for part in bridge(encoder(torch.ones(2, 4, dtype=torch.long)))]
    [(2, 7), (2, 7)]

    Args:
        encoder: whose last states are taken
        hidden: width of the decoder's layers
        layers: number of layers of the decoder
    """

    def __init__(self, encoder: Encoder, hidden: int, layers: int = 1) -> None:
        super().__init__()
        layered = encoder.recurrent
        theirs = len(layered)
        pairs = [min(max(theirs - layers, 0) + layer, theirs - 1) for layer in range(layers)]
        self.taken = [part * theirs + pair for part in range(layered.parts) for pair in pairs]
        self.projections = nn.ModuleList(
            nn.Linear(layered.widths[pair], hidden)
            if layered.bidirectional[pair] or layered.widths[pair] != hidden
            else nn.Identity()
            for _ in range(layered.parts)
            for pair in pairs
        )

    def forward(self, memory: Memory) -> Hidden:
        """The decoder's state before its first step."""
        if memory.final is None:
            raise ValueError("this decoder starts from the encoder's last state, got final=None")
        ends = [memory.final[index] for index in self.taken]
        return tuple(
            end if isinstance(project, nn.Identity) else torch.tanh(project(end))
            for project, end in zip(self.projections, ends, strict=True)
        )


class RecurrentDecoder(nn.Module):
    """The interface of recurrent decoders: `forward` over a whole target, `start` and `step`.

    A subclass sets `width`, the width of its features, and implements `forward` and `advance`.

    Args:
        encoder: whose states are attended to; the decoder uses the same kind of cell
        embedding: of target tokens
        hidden: width of the states
        layers: number of recurrent layers
        dropout: of the features and between layers, in train mode
    """

    width: int
    attention: Aligner

    def __init__(
        self, encoder: Encoder, embedding: Tokens, hidden: int, *, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = Bridge(encoder, hidden, layers)
        self.drop = Dropout(dropout)

    def start(self, memory: Memory) -> State:
        """The state before the first step."""
        return State(self.bridge(memory), self.attention.start(memory), None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features (batch, width) after tokens (batch,), and the new state."""
        return self.advance(self.embedding(tokens.unsqueeze(1)).squeeze(1), state)

    def advance(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        """One step with an embedded token (batch, dim)."""
        raise NotImplementedError

    def _attend(self, query: Tensor, state: State) -> tuple[Tensor, Past | SharedMemory]:
        """The context (batch, key_dim) of queries (batch, query_dim), and the memory after it."""
        assert state.memory is not None
        return self.attention.step(query, state.memory)


class Plain(RecurrentDecoder):
    """No attention: start from the encoder's last state. Sutskever et al. 2014.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5)
    >>> decoder = Plain(encoder, Tokens(17, 3), hidden=5)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> decoder(memory, torch.ones(2, 4, dtype=torch.long)).shape
    torch.Size([2, 4, 5])

    Args: those of `RecurrentDecoder`, and
        residual: whether layers above the first add their input
    """

    peeks = False

    def __init__(
        self,
        encoder: Encoder,
        embedding: Tokens,
        hidden: int,
        *,
        layers: int = 1,
        residual: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(encoder, embedding, hidden, layers=layers, dropout=dropout)
        peek = hidden if self.peeks else 0
        stack: dict[str, Any] = {"layers": layers, "residual": residual, "dropout": dropout}
        self.recurrent = Recurrent(embedding.dim + peek, hidden, cell=encoder.cell, **stack)
        self.width = hidden + peek

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Teacher forced: features (batch, T, width) of target ids (batch, T)."""
        hidden, _, peek = self.start(memory)
        if peek is not None:
            peek = peek.unsqueeze(1).expand(-1, target.shape[1], -1)
        output, _ = self.recurrent(_joined(self.embedding(target), peek), hidden)
        return self.drop(_joined(output, peek))

    def start(self, memory: Memory) -> State:
        """The state before the first step; `Peeky` feeds the top layer's to every step."""
        hidden = self.bridge(memory)
        return State(hidden, None, hidden[len(self.recurrent) - 1] if self.peeks else None)

    def advance(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        output, hidden = self.recurrent.step(_joined(embedded, state.fed), state.hidden)
        return self.drop(_joined(output, state.fed)), state._replace(hidden=hidden)


class Peeky(Plain):
    """`Plain`, with the encoder's last state joined to every input and output. Cho et al. 2014.

    What is joined is the first state of the top layer, as the bridge made it.
    """

    peeks = True


def _joined(x: Tensor, peek: Tensor | None) -> Tensor:
    return x if peek is None else torch.cat((x, peek), dim=-1)
