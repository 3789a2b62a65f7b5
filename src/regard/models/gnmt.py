"""The deep decoder of Google's translator: the bottom layer asks, all layers above are told."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.layers.dropout import drop
from regard.models.aligner import Aligner, GlobalAligner
from regard.models.bridge import Bridge
from regard.models.embedding import Tokens, check_sizes
from regard.models.encoder import Encoder
from regard.models.memory import Maps, Memory
from regard.models.recurrent import Hidden, Recurrent
from regard.models.state import State


class GNMT(nn.Module):
    """A deep stack with attention from its first layer. Wu et al. 2016, section 3.

        x¹ₜ = RNN¹(E yₜ₋₁),  aₜ = attend(x¹ₜ, memory)
        x²ₜ = RNN²([x¹ₜ ; aₜ]),  xⁱₜ = xⁱ⁻¹ₜ + RNNⁱ([xⁱ⁻¹ₜ ; aₜ]) from the third layer on

    The first layer asks with its state of the same step and waits for no context, so that the
    whole target goes through every layer, and through the attention, at once. Its encoder is
    `Encoder(..., bidirectional="bottom", residual=True)`.

    >>> import torch
    >>> encoder = Encoder(Tokens(13, 3), hidden=5, layers=3, bidirectional="bottom", residual=True)
    >>> decoder = GNMT(encoder, Tokens(17, 3), hidden=5, layers=3)
    >>> memory = encoder(torch.ones(2, 11, dtype=torch.long))
    >>> decoder(memory, torch.ones(2, 4, dtype=torch.long))[0].shape
    torch.Size([2, 4, 5])

    Args:
        encoder: whose states are asked; its kind of cell is the decoder's
        reader: the embedding of target tokens
        hidden: width of the states
        layers: number of recurrent layers, 2 or more
        attention: makes an aligner from the widths of query and key
        dropout: of the features and between layers, in train mode
    """

    def __init__(
        self,
        encoder: Encoder,
        reader: Tokens,
        hidden: int,
        *,
        layers: int = 8,
        attention: Callable[[int, int], Aligner] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(hidden=hidden)
        if layers < 2:
            raise ValueError(
                f"this decoder asks with its first layer and tells those above, so it needs 2 or "
                f"more layers, got {layers}"
            )
        self.reader = reader
        self.bridge = Bridge(encoder, hidden, layers)
        self.bottom = Recurrent(reader.dim, hidden, cell=encoder.cell)
        if attention is None:
            self.attention: Aligner = GlobalAligner(hidden, encoder.width, score="additive")
        else:
            self.attention = attention(hidden, encoder.width)
        self.upper = Recurrent(
            hidden,
            hidden,
            layers=layers - 1,
            cell=encoder.cell,
            residual=True,
            side=encoder.width,
            dropout=dropout,
        )
        self.width, self.layers, self.dropout = hidden, layers, dropout

    def forward(
        self, memory: Memory, target: Tensor, *, return_map: bool = False
    ) -> tuple[Tensor, Maps]:
        """Teacher forced: features (batch, T, width) of target ids (batch, T), and maps."""
        first, rest = self._split(self.bridge(memory))
        x, _ = self.bottom(self.reader(target), first)
        context, map = self.attention(x, memory, return_map=return_map)
        x, _ = self.upper(self._drop(x), rest, context)
        return self._drop(x), {} if map is None else {"attention": map}

    def start(self, memory: Memory, *, return_map: bool = False) -> State:
        """The state before the first step."""
        hidden, asked = self.bridge(memory), self.attention.start(memory)
        return State(hidden, asked, None, {} if return_map else None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features (batch, width) after reading tokens (batch,), and the new state."""
        assert state.memory is not None
        first, rest = self._split(state.hidden)
        x, first = self.bottom.step(self.reader(tokens.unsqueeze(1)).squeeze(1), first)
        asked = state.weights is not None
        context, weights, memory = self.attention.step(x, state.memory, return_map=asked)
        x, rest = self.upper.step(self._drop(x), rest, context)
        kept = None if weights is None else {"attention": weights}
        return self._drop(x), State(self._joined(first, rest), memory, None, kept)

    def _split(self, hidden: Hidden) -> tuple[Hidden, Hidden]:
        """The states of the first layer, and those of the layers above."""
        rest = tuple(part for place, part in enumerate(hidden) if place % self.layers)
        return hidden[:: self.layers], rest

    def _joined(self, first: Hidden, rest: Hidden) -> Hidden:
        above = self.layers - 1
        parts = enumerate(first)
        return tuple(t for p, own in parts for t in (own, *rest[p * above : (p + 1) * above]))

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"
