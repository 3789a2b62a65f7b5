"""Recurrent layers: a stack that runs over a sequence or step by step, and the encoder."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.names import check_name
from regard.layers.checks import check_sizes
from regard.layers.dropout import Dropout
from regard.layers.masking import padding_mask, zero_padding
from regard.layers.recurrence import recur
from regard.models.embedding import Frames, Tokens
from regard.models.memory import Memory, check_lengths

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}
"""GRU: Cho et al. 2014, with the reset after the matrix as in torch; LSTM: Gers et al. 2000."""

PARTS = {"gru": 1, "lstm": 2}
"""How many tensors make up the state of a cell: h, or h and c."""

DIRECTIONS = {"none": 0, "bottom": 1, "all": -1}
"""How many layers, from the bottom, are bidirectional."""

Hidden = tuple[Tensor, ...]
"""The states of all layers, bottom first, (batch, hidden) each; then, for an LSTM, their cells."""


class Recurrent(nn.Module):
    """A stack of recurrent layers; each output is the input of the layer above.

    With `residual`, every layer but the first adds its input: x + layer(x). Wu et al. 2016,
    section 3.1.

    >>> stack = Recurrent(3, 5, layers=2)
    >>> x, hidden = torch.randn(2, 7, 3), stack.zero(2, torch.zeros(()))
    >>> output, last = stack(x, hidden)
    >>> first, _ = stack.step(x[:, 0], hidden)
    >>> output.shape, torch.allclose(first, output[:, 0], atol=1e-6)
    (torch.Size([2, 7, 5]), True)

    Args:
        dim: width of the input
        hidden: width of every layer, in each of its directions
        layers: number of layers
        cell: "gru" or "lstm"
        bidirectional: which layers are: "none", "bottom" or "all"
        residual: whether layers above the first add their input, where the widths agree
        side: width of an input that every layer gets beside its own, 0 for none
        dropout: of the input of every layer but the first, in train mode; the residual
            connection is not dropped
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        layers: int = 1,
        cell: str = "gru",
        bidirectional: str = "none",
        residual: bool = False,
        side: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(dim=dim, hidden=hidden, layers=layers)
        check_name("cell", cell, CELLS)
        check_name("bidirectional", bidirectional, DIRECTIONS)
        both = DIRECTIONS[bidirectional] % (layers + 1)
        self.bidirectional = [layer < both for layer in range(layers)]
        self.widths = [hidden * (2 if each else 1) for each in self.bidirectional]
        self.layers = nn.ModuleList(
            CELLS[cell](width + side, hidden, batch_first=True, bidirectional=each)
            for width, each in zip([dim, *self.widths], self.bidirectional, strict=False)
        )
        for layer in self.layers:
            initialize(layer)  # type: ignore[arg-type]
        self.residual = [False, *(residual and i == o for i, o in pairwise(self.widths))]
        self.hidden, self.cell, self.parts = hidden, cell, PARTS[cell]
        self.drop = Dropout(dropout)

    @property
    def width(self) -> int:
        """Width of the output."""
        return self.widths[-1]

    def zero(self, batch: int, like: Tensor) -> Hidden:
        """A state of zeros."""
        return tuple(like.new_zeros(batch, self.hidden) for _ in range(self.parts * len(self)))

    def __len__(self) -> int:
        return len(self.layers)

    def forward(
        self,
        x: Tensor,
        hidden: Hidden = (),
        side: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Hidden]:
        """Run over a whole sequence.

        Args:
            x: (batch, T, dim)
            hidden: the state before the first step; zeros if not given
            side: (batch, T, side), which every layer gets beside its input
            lengths: how many positions are real, (batch,); all if None

        Returns: (batch, T, width), and the last state; a bidirectional layer concatenates the
            last states of its two directions
        """
        after = []
        for layer, own in enumerate(self._by_layer(hidden)):
            joined = self._input(x, layer, side)
            y, last = recur(self.layers[layer], joined, own, lengths)  # type: ignore[arg-type]
            after.append(last)
            x = x + y if self.residual[layer] else y
        return x, _flat(after)

    def step(self, x: Tensor, hidden: Hidden, side: Tensor | None = None) -> tuple[Tensor, Hidden]:
        """One step, x (batch, dim) to (batch, hidden), and the new state."""
        after = []
        for layer, own in enumerate(self._by_layer(hidden)):
            joined = self._input(x, layer, side)
            weights: Sequence[Tensor] = self.layers[layer].all_weights[0]  # type: ignore
            if self.parts == 1:
                new: Sequence[Tensor] = [torch.gru_cell(joined, own[0], *weights)]
            else:
                new = torch.lstm_cell(joined, own, *weights)
            after.append(list(new))
            x = x + new[0] if self.residual[layer] else new[0]
        return x, _flat(after)

    def _input(self, x: Tensor, layer: int, side: Tensor | None) -> Tensor:
        x = x if layer == 0 else self.drop(x)
        return x if side is None else torch.cat((x, side), dim=-1)

    def _by_layer(self, hidden: Hidden) -> list[list[Tensor]]:
        return [list(hidden[layer :: len(self)]) for layer in range(len(self))]

    def extra_repr(self) -> str:
        return f"residual={self.residual}"


def initialize(layer: nn.RNNBase | nn.RNNCellBase) -> None:
    """Initialise a recurrent layer so that its states differ from token to token.

    Every gate has a matrix after Glorot & Bengio 2010, eq. 16, and no bias, except 1 for the
    forget gate of an LSTM (Jozefowicz et al. 2015). With torch's uniform ±1/√hidden for matrices
    and biases, each layer of a deep stack loses most of what distinguishes its inputs.
    """
    for name, parameter in layer.named_parameters():
        gates = parameter.detach().split(layer.hidden_size)
        for gate in gates:
            if name.startswith("weight"):
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)
        if isinstance(layer, nn.LSTM) and name.startswith("bias_ih"):
            nn.init.ones_(gates[1])  # input, forget, cell, output


class Encoder(nn.Module):
    """Recurrent layers over the embedded source, in one direction or in both.

        h(j) = [→h(j) ; ←h(j)]                            Bahdanau et al. 2015, section 3.2

    With `bidirectional="bottom"` and `residual=True` it is the deep encoder of Wu et al. 2016,
    section 3.2: the first layer is bidirectional, the others are not, and from the third layer on
    each adds its input to its output.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5, bidirectional="all")
    >>> memory = encoder(torch.randint(13, (2, 7)), torch.tensor([7, 4]))
    >>> memory.states.shape, [tuple(part.shape) for part in memory.final]
    (torch.Size([2, 7, 10]), [(2, 10)])

    With `reverse_source` it reads from the last position to the first (Sutskever et al. 2014,
    section 3.3); the states stay in the order of the source.

    Args:
        embedding: of the source, `Tokens` or `Frames`
        hidden, options: as for `Recurrent`
        reverse_source: whether to read the source backwards
    """

    def __init__(
        self,
        embedding: Tokens | Frames,
        hidden: int,
        *,
        reverse_source: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.embedding, self.reverse_source = embedding, reverse_source
        self.recurrent = Recurrent(embedding.dim, hidden, **options)

    @property
    def width(self) -> int:
        """Width of the states."""
        return self.recurrent.width

    @property
    def cell(self) -> str:
        """The kind of the cells, which decoders share."""
        return self.recurrent.cell

    def forward(self, source: Tensor, source_lengths: Tensor | None = None) -> Memory:
        """Encode the source.

        Args:
            source: token ids (batch, S), or float frames (batch, S, width)
            source_lengths: how many of them are real, (batch,); all if None

        Returns: a `Memory` whose `final` is the last state of all layers; that of an empty
            sentence is zero
        """
        counts = check_lengths(source, source_lengths)
        if not source.shape[1]:
            raise ValueError(f"source should have 1 or more positions, got {tuple(source.shape)}")
        memory = Memory(source, counts, None)
        padded = memory.mask() is not None
        if source.is_floating_point():
            source = zero_padding(source, padding_mask(counts, source))
        embedded = self._ordered(self.embedding(source), counts)
        x, final = self.recurrent(embedded, lengths=counts if padded else None)
        x = self._ordered(x, counts)
        if padded:
            x = zero_padding(x, padding_mask(counts, x))
            final = tuple(torch.where(counts.unsqueeze(1) > 0, part, 0.0) for part in final)
        return Memory(x, counts, final)

    def _ordered(self, x: Tensor, counts: Tensor) -> Tensor:
        """The real positions in the order in which they are read, or back again."""
        if not self.reverse_source:
            return x
        place = counts.unsqueeze(1) - 1 - torch.arange(x.shape[1], device=x.device)  # (batch, S)
        return x.take_along_dim(place.clamp(min=0).unsqueeze(-1), dim=1)

    def extra_repr(self) -> str:
        return "reverse_source=True" if self.reverse_source else ""


def _flat(after: list[list[Tensor]]) -> Hidden:
    """States of layers as one tuple, h of all layers first."""
    return tuple(part for parts in zip(*after, strict=True) for part in parts)
