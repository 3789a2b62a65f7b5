"""Luong's decoder: the current state is the query, and the context joins the output."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.aligner import Aligner, GlobalAligner
from regard.models.decoder import RecurrentDecoder, State
from regard.models.embedding import Tokens
from regard.models.memory import Memory
from regard.models.recurrent import Encoder, Recurrent


class Attentional(nn.Module):
    """h̃ = tanh(W [c ; h]). Luong et al. 2015, eq. 5.

    >>> Attentional(3, 5)(torch.zeros(2, 3), torch.zeros(2, 5)).shape
    torch.Size([2, 5])

    Args:
        context_dim: width of the context c
        hidden: width of the state h, and of the result
    """

    def __init__(self, context_dim: int, hidden: int) -> None:
        super().__init__()
        self.projection = nn.Linear(context_dim + hidden, hidden, bias=False)
        self.width = hidden

    def forward(self, context: Tensor, state: Tensor) -> Tensor:
        return torch.tanh(self.projection(torch.cat((context, state), dim=-1)))


class Concatenation(nn.Module):
    """[c ; h], without parameters.

    >>> Concatenation(3, 5)(torch.zeros(2, 3), torch.zeros(2, 5)).shape
    torch.Size([2, 8])
    """

    def __init__(self, context_dim: int, hidden: int) -> None:
        super().__init__()
        self.width = context_dim + hidden

    def forward(self, context: Tensor, state: Tensor) -> Tensor:
        return torch.cat((context, state), dim=-1)


Join = Attentional | Concatenation

JOINS: dict[str, type[Join]] = {"tanh": Attentional, "concatenate": Concatenation}
"""How the context joins the state, by name."""


class Luong(RecurrentDecoder):
    """Take the step, then align with the new state. Luong et al. 2015, section 3.

        hₜ = RNN(E yₜ₋₁, hₜ₋₁)       or, with input feeding, RNN([E yₜ₋₁ ; h̃ₜ₋₁], hₜ₋₁)
        aₜ = softmax(score(hₜ, h̄ₛ)),  cₜ = Σₛ aₜ(s) h̄ₛ                              eq. 7
        h̃ₜ = tanh(W [cₜ ; hₜ])                                                      eq. 5

    Without input feeding no step depends on the attention of the one before, so that the whole
    target goes through the recurrent layers at once and through one call of `attend`.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5)
    >>> decoder = Luong(encoder, Tokens(17, 3), hidden=5)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> decoder(memory, torch.ones(2, 4, dtype=torch.long)).shape
    torch.Size([2, 4, 5])

    Args: those of `RecurrentDecoder`, and
        residual: whether layers above the first add their input
        attention: makes an aligner from the widths of query and key; the top layer is the query
        join: makes, from the widths of context and state, the module that joins them
        feeding: whether the features of a step join the input of the next, section 3.3
    """

    def __init__(
        self,
        encoder: Encoder,
        embedding: Tokens,
        hidden: int,
        *,
        layers: int = 1,
        residual: bool = False,
        attention: Callable[[int, int], Aligner] = GlobalAligner,
        join: Callable[[int, int], Join] = Attentional,
        feeding: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(encoder, embedding, hidden, layers=layers, dropout=dropout)
        self.attention = attention(hidden, encoder.width)
        self.join = join(encoder.width, hidden)
        self.width = self.join.width
        fed = self.width if feeding else 0
        stack: dict[str, Any] = {"layers": layers, "residual": residual, "dropout": dropout}
        self.recurrent = Recurrent(embedding.dim + fed, hidden, cell=encoder.cell, **stack)
        self.feeding = feeding

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Teacher forced: features (batch, T, width) of target ids (batch, T)."""
        embedded = self.embedding(target)
        if not self.feeding:
            output, _ = self.recurrent(embedded, self.bridge(memory))
            return self.drop(self.join(self.attention(output, memory), output))
        state, features = self.start(memory), []
        for now in embedded.unbind(1):
            feature, state = self.advance(now, state)
            features.append(feature)
        return torch.stack(features, 1)

    def start(self, memory: Memory) -> State:
        """The state before the first step, to which zeros are fed."""
        state = super().start(memory)
        if not self.feeding:
            return state
        first = state.hidden[0]
        return state._replace(fed=first.new_zeros(first.shape[0], self.width))

    def advance(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        joined = embedded if state.fed is None else torch.cat((embedded, state.fed), dim=-1)
        output, hidden = self.recurrent.step(joined, state.hidden)
        context, memory = self._attend(output, state)
        features = self.drop(self.join(context, output))
        return features, State(hidden, memory, features if self.feeding else None)

    def extra_repr(self) -> str:
        return f"feeding={self.feeding}"
