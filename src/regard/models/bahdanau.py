"""Bahdanau's decoder: the previous state asks, and the context joins the input."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.layers.dropout import drop
from regard.models.aligner import Aligner, GlobalAligner
from regard.models.bridge import Bridge
from regard.models.embedding import Tokens
from regard.models.encoder import Encoder
from regard.models.join import Maxout
from regard.models.memory import Maps, Memory
from regard.models.recurrent import Recurrent
from regard.models.state import State


class Bahdanau(nn.Module):
    """Align with the previous state, then take the step. Bahdanau et al. 2015, A.1.2 and A.2.2.

        αᵢⱼ = softmaxⱼ(vᵀ tanh(W sᵢ₋₁ + U hⱼ)),  cᵢ = Σⱼ αᵢⱼ hⱼ
        sᵢ = RNN([E yᵢ₋₁ ; cᵢ], sᵢ₋₁)
        tᵢ = maxout([sᵢ ; E yᵢ₋₁ ; cᵢ])

    The keys U hⱼ are projected once for all steps. The output sees the new state sᵢ, as in the
    paper's eq. 4; its appendix writes sᵢ₋₁ there. The GRU is torch's: the reset gate comes after
    the matrix, and the update gate keeps where the paper's replaces.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5, bidirectional="all")
    >>> decoder = Bahdanau(encoder, Tokens(17, 3), hidden=7)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> features, maps = decoder(memory, torch.ones(2, 4, dtype=torch.long), return_map=True)
    >>> features.shape, maps["attention"].shape
    (torch.Size([2, 4, 7]), torch.Size([2, 1, 4, 11]))

    Args:
        encoder: whose states are asked; its kind of cell is the decoder's
        reader: the embedding of target tokens
        hidden: width of the states
        layers: number of recurrent layers; the top one asks
        residual: whether layers above the first add their input
        attention: makes an aligner from the widths of query and key
        width: of the features, `hidden` if None
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
        attention: Callable[[int, int], Aligner] | None = None,
        width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.bridge = Bridge(encoder, hidden, layers)
        dim = reader.dim + encoder.width
        self.recurrent = Recurrent(
            dim, hidden, layers=layers, cell=encoder.cell, residual=residual, dropout=dropout
        )
        if attention is None:
            self.attention: Aligner = GlobalAligner(hidden, encoder.width, score="additive")
        else:
            self.attention = attention(hidden, encoder.width)
        self.width = hidden if width is None else width
        self.join = Maxout(hidden + dim, self.width)
        self.dropout = dropout

    def forward(
        self, memory: Memory, target: Tensor, *, return_map: bool = False
    ) -> tuple[Tensor, Maps]:
        """Teacher forced: features (batch, T, width) of target ids (batch, T), and maps."""
        embedded = self.reader(target)
        together = self._together(memory, embedded)
        if together is not None:
            states, contexts, weights = together
            maps: Maps = {"attention": weights.unsqueeze(1)} if return_map else {}
            return self._features(states, embedded, contexts), maps
        state = self.start(memory, return_map=return_map)
        steps = []
        for now in embedded.unbind(1):
            hidden, context, state = self._advance(now, state)
            steps.append((hidden, context, state.weights))
        hiddens, sums, looks = zip(*steps, strict=True)
        features = self._features(torch.stack(hiddens, 1), embedded, torch.stack(sums, 1))
        return features, stacked(list(looks)) if return_map else {}

    def start(self, memory: Memory, *, return_map: bool = False) -> State:
        """The state before the first step."""
        hidden, asked = self.bridge(memory), self.attention.start(memory)
        return State(hidden, asked, None, {} if return_map else None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features (batch, width) after reading tokens (batch,), and the new state."""
        now = self.reader(tokens.unsqueeze(1)).squeeze(1)
        hidden, context, state = self._advance(now, state)
        return self._features(hidden, now, context), state

    def _together(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """States, contexts and weights of all steps in one go; None where steps are needed."""
        if len(self.recurrent) > 1 or not isinstance(self.attention, GlobalAligner):
            return None
        layer: nn.RNNBase = self.recurrent.layers[0]  # type: ignore[assignment]
        return self.attention.together(layer, embedded, self.bridge(memory), memory)

    def _advance(self, now: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """One step with the embedding (batch, dim): the new state, its context, what to keep."""
        query = state.hidden[len(self.recurrent) - 1]  # of the top layer, one step ago
        assert state.memory is not None
        asked = state.weights is not None
        context, weights, memory = self.attention.step(query, state.memory, return_map=asked)
        output, hidden = self.recurrent.step(torch.cat((now, context), dim=-1), state.hidden)
        kept = None if weights is None else {"attention": weights}
        return output, context, State(hidden, memory, None, kept)

    def _features(self, state: Tensor, now: Tensor, context: Tensor) -> Tensor:
        return drop(self.join(state, now, context), self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


def stacked(weights: list[dict[str, Tensor] | None]) -> Maps:
    """The weights of all steps, (batch, 1, S) each, as maps (batch, 1, T, S)."""
    steps = [step for step in weights if step]
    return {name: torch.stack([step[name] for step in steps], 2) for name in (steps or [{}])[0]}
