"""Luong's decoder: the current state asks, and the context joins the output."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.layers.dropout import drop
from regard.models.aligner import Aligner, GlobalAligner
from regard.models.bahdanau import stacked
from regard.models.bridge import Bridge
from regard.models.embedding import Tokens
from regard.models.encoder import Encoder
from regard.models.join import Attentional, Join
from regard.models.memory import Maps, Memory
from regard.models.recurrent import Recurrent
from regard.models.state import State


class Luong(nn.Module):
    """Take the step, then align with the new state. Luong et al. 2015, section 3.

        hₜ = RNN(E yₜ₋₁, hₜ₋₁)                  or, fed, RNN([E yₜ₋₁ ; h̃ₜ₋₁], hₜ₋₁)
        aₜ = softmax(score(hₜ, h̄ₛ)),  cₜ = Σₛ aₜ(s) h̄ₛ                              eq. 7
        h̃ₜ = tanh(W [cₜ ; hₜ])                                                      eq. 5

    Without input feeding no step waits for the attention of the one before, so that the whole
    target goes through the recurrent layers at once and through one call of `attend`.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5)
    >>> decoder = Luong(encoder, Tokens(17, 3), hidden=5)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> features, maps = decoder(memory, torch.ones(2, 4, dtype=torch.long), return_map=True)
    >>> features.shape, maps["attention"].shape
    (torch.Size([2, 4, 5]), torch.Size([2, 1, 4, 11]))

    Args:
        encoder: whose states are asked; its kind of cell is the decoder's
        reader: the embedding of target tokens
        hidden: width of the states
        layers: number of recurrent layers; the top one asks
        residual: whether layers above the first add their input
        attention: makes an aligner from the widths of query and key
        join: makes, from the widths of context and state, what joins them
        feeding: whether the features of a step join the input of the next, section 3.3
        dropout: of the features and between layers, in train mode
    """

    def __init__(
        self,
        encoder: Encoder,
        reader: Tokens,
        hidden: int,
        *,
        layers: int = 1,
        residual: bool = False,
        attention: Callable[[int, int], Aligner] = GlobalAligner,
        join: Callable[[int, int], Join] = Attentional,
        feeding: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.bridge = Bridge(encoder, hidden, layers)
        self.attention = attention(hidden, encoder.width)
        self.join = join(encoder.width, hidden)
        self.width: int = self.join.width
        self.recurrent = Recurrent(
            reader.dim + (self.width if feeding else 0),
            hidden,
            layers=layers,
            cell=encoder.cell,
            residual=residual,
            dropout=dropout,
        )
        self.feeding, self.dropout = feeding, dropout

    def forward(
        self, memory: Memory, target: Tensor, *, return_map: bool = False
    ) -> tuple[Tensor, Maps]:
        """Teacher forced: features (batch, T, width) of target ids (batch, T), and maps."""
        embedded = self.reader(target)
        if not self.feeding:
            output, _ = self.recurrent(embedded, self.bridge(memory))
            context, map = self.attention(output, memory, return_map=return_map)
            return self._features(context, output), {} if map is None else {"attention": map}
        state = self.start(memory, return_map=return_map)
        features, weights = [], []
        for now in embedded.unbind(1):
            feature, state = self._advance(now, state)
            features.append(feature)
            weights.append(state.weights)
        return torch.stack(features, 1), stacked(weights) if return_map else {}

    def start(self, memory: Memory, *, return_map: bool = False) -> State:
        """The state before the first step; what is fed to it is zero."""
        hidden, asked = self.bridge(memory), self.attention.start(memory)
        fed = hidden[0].new_zeros(len(hidden[0]), self.width) if self.feeding else None
        return State(hidden, asked, fed, {} if return_map else None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features (batch, width) after reading tokens (batch,), and the new state."""
        return self._advance(self.reader(tokens.unsqueeze(1)).squeeze(1), state)

    def _advance(self, now: Tensor, state: State) -> tuple[Tensor, State]:
        assert state.memory is not None
        joined = now if state.fed is None else torch.cat((now, state.fed), dim=-1)
        output, hidden = self.recurrent.step(joined, state.hidden)
        asked = state.weights is not None
        context, weights, memory = self.attention.step(output, state.memory, return_map=asked)
        features = self._features(context, output)
        kept = None if weights is None else {"attention": weights}
        return features, State(hidden, memory, features if self.feeding else None, kept)

    def _features(self, context: Tensor, output: Tensor) -> Tensor:
        return drop(self.join(context, output), self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"feeding={self.feeding}, dropout={self.dropout}"
