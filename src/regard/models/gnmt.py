"""The deep decoder of GNMT: the bottom layer attends, and all layers above get the context."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.layers.checks import check_sizes
from regard.models.aligner import AdditiveAligner, Aligner
from regard.models.decoder import RecurrentDecoder, State
from regard.models.embedding import Tokens
from regard.models.memory import Memory
from regard.models.recurrent import Encoder, Hidden, Recurrent


class GNMT(RecurrentDecoder):
    """A deep stack with attention from its first layer. Wu et al. 2016, section 3.

        x¹ₜ = RNN¹(E yₜ₋₁),  aₜ = attend(x¹ₜ, memory)
        x²ₜ = RNN²([x¹ₜ ; aₜ]),  xⁱₜ = xⁱ⁻¹ₜ + RNNⁱ([xⁱ⁻¹ₜ ; aₜ]) from the third layer on

    The first layer attends with its state of the same step and takes no context, so that the
    whole target goes through every layer, and through the attention, at once. Its encoder is
    `Encoder(..., bidirectional="bottom", residual=True)`.

    >>> import torch
    >>> encoder = Encoder(Tokens(13, 3), hidden=5, layers=3, bidirectional="bottom", residual=True)
    >>> decoder = GNMT(encoder, Tokens(17, 3), hidden=5, layers=3)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> decoder(memory, torch.ones(2, 4, dtype=torch.long)).shape
    torch.Size([2, 4, 5])

    Args: those of `RecurrentDecoder`, with 2 or more layers, and
        attention: makes an aligner from the widths of query and key
    """

    def __init__(
        self,
        encoder: Encoder,
        embedding: Tokens,
        hidden: int,
        *,
        layers: int = 8,
        attention: Callable[[int, int], Aligner] = AdditiveAligner,
        dropout: float = 0.0,
    ) -> None:
        check_sizes(hidden=hidden)
        if layers < 2:
            raise ValueError(f"GNMT needs at least 2 layers, got {layers}")
        super().__init__(encoder, embedding, hidden, layers=layers, dropout=dropout)
        self.bottom = Recurrent(embedding.dim, hidden, cell=encoder.cell)
        self.attention = attention(hidden, encoder.width)
        above: dict[str, Any] = {"layers": layers - 1, "residual": True, "dropout": dropout}
        self.upper = Recurrent(hidden, hidden, cell=encoder.cell, side=encoder.width, **above)
        self.width, self.layers = hidden, layers

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Teacher forced: features (batch, T, width) of target ids (batch, T)."""
        first, rest = self._split(self.bridge(memory))
        x, _ = self.bottom(self.embedding(target), first)
        context = self.attention(x, memory)
        x, _ = self.upper(self.drop(x), rest, context)
        return self.drop(x)

    def advance(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        first, rest = self._split(state.hidden)
        x, first = self.bottom.step(embedded, first)
        context, memory = self._attend(x, state)
        x, rest = self.upper.step(self.drop(x), rest, context)
        return self.drop(x), State(self._merged(first, rest), memory, None)

    def _split(self, hidden: Hidden) -> tuple[Hidden, Hidden]:
        """The states of the first layer, and those of the layers above."""
        rest = tuple(part for place, part in enumerate(hidden) if place % self.layers)
        return hidden[:: self.layers], rest

    def _merged(self, first: Hidden, rest: Hidden) -> Hidden:
        """The inverse of `_split`."""
        above = self.layers - 1
        parts = enumerate(first)
        return tuple(t for p, own in parts for t in (own, *rest[p * above : (p + 1) * above]))
