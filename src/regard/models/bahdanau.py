"""Bahdanau's decoder: the previous state is the query, and the context joins the input."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.ties import largest
from regard.models.aligner import AdditiveAligner, Aligner, GlobalAligner
from regard.models.decoder import RecurrentDecoder, State
from regard.models.embedding import Tokens
from regard.models.memory import Memory
from regard.models.recurrent import Encoder, Recurrent


class Maxout(nn.Module):
    """The deep output t = max of pairs of W [s ; e ; c] + b. Bahdanau et al. 2015, A.2.2.

    >>> Maxout(3 + 5 + 7, 11)(torch.zeros(2, 3), torch.zeros(2, 5), torch.zeros(2, 7)).shape
    torch.Size([2, 11])

    Args:
        dim: width of all inputs together
        width: of the result
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(dim, 2 * width)

    def forward(self, *inputs: Tensor) -> Tensor:
        pairs = self.projection(torch.cat(inputs, dim=-1)).unflatten(-1, (-1, 2))
        return largest(pairs, -1)


class Bahdanau(RecurrentDecoder):
    """Align with the previous state, then take the step. Bahdanau et al. 2015, A.1.2 and A.2.2.

        αᵢⱼ = softmaxⱼ(vᵀ tanh(W sᵢ₋₁ + U hⱼ)),  cᵢ = Σⱼ αᵢⱼ hⱼ
        sᵢ = RNN([E yᵢ₋₁ ; cᵢ], sᵢ₋₁)
        tᵢ = maxout([sᵢ ; E yᵢ₋₁ ; cᵢ])

    The keys U hⱼ are projected once for all steps. The output uses the new state sᵢ, as in the
    paper's eq. 4; its appendix writes sᵢ₋₁ there. The GRU is torch's: the reset gate comes after
    the matrix, and the update gate keeps where the paper's replaces.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5, bidirectional="all")
    >>> decoder = Bahdanau(encoder, Tokens(17, 3), hidden=7)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> decoder(memory, torch.ones(2, 4, dtype=torch.long)).shape
    torch.Size([2, 4, 7])

    Args: those of `RecurrentDecoder`, and
        residual: whether layers above the first add their input
        attention: makes an aligner from the widths of query and key; the top layer is the query
        width: of the features, `hidden` if None
    """

    def __init__(
        self,
        encoder: Encoder,
        embedding: Tokens,
        hidden: int,
        *,
        layers: int = 1,
        residual: bool = False,
        attention: Callable[[int, int], Aligner] = AdditiveAligner,
        width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(encoder, embedding, hidden, layers=layers, dropout=dropout)
        dim = embedding.dim + encoder.width
        stack: dict[str, Any] = {"layers": layers, "residual": residual, "dropout": dropout}
        self.recurrent = Recurrent(dim, hidden, cell=encoder.cell, **stack)
        self.attention = attention(hidden, encoder.width)
        self.width = hidden if width is None else width
        self.join = Maxout(hidden + dim, self.width)

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Teacher forced: features (batch, T, width) of target ids (batch, T)."""
        embedded = self.embedding(target)
        unrolled = self._unrolled(memory, embedded)
        if unrolled is None:
            state, steps = self.start(memory), []
            for now in embedded.unbind(1):
                hidden, context, state = self._advance(now, state)
                steps.append((hidden, context))
            hiddens, contexts = zip(*steps, strict=True)
            unrolled = torch.stack(hiddens, 1), torch.stack(contexts, 1)
        states, context = unrolled
        return self.drop(self.join(states, embedded, context))

    def advance(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, context, state = self._advance(embedded, state)
        return self.drop(self.join(hidden, embedded, context)), state

    def _unrolled(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Tensor] | None:
        """States and contexts of all steps in one operation; None where steps are needed."""
        if len(self.recurrent) > 1 or not isinstance(self.attention, GlobalAligner):
            return None
        layer: nn.RNNBase = self.recurrent.layers[0]  # type: ignore[assignment]
        return self.attention.unrolled(layer, embedded, self.bridge(memory), memory)

    def _advance(self, embedded: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """One step: the output of the top layer, its context, and the new state."""
        query = state.hidden[len(self.recurrent) - 1]  # of the top layer, one step ago
        context, memory = self._attend(query, state)
        output, hidden = self.recurrent.step(torch.cat((embedded, context), dim=-1), state.hidden)
        return output, context, State(hidden, memory, None)
