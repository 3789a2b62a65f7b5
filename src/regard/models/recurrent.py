"""A stack of recurrent layers that runs over a whole sequence or one step at a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.core.names import did_you_mean
from regard.layers.dropout import check_dropout, drop
from regard.layers.recurrence import recur
from regard.models.embedding import check_sizes

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}
"""GRU: Cho et al. 2014, with the reset after the matrix as in torch; LSTM: Gers et al. 2000."""

PARTS = {"gru": 1, "lstm": 2}
"""How many tensors a cell remembers: h, or h and c."""

Hidden = tuple[Tensor, ...]
"""The states of all layers, bottom first, (batch, hidden) each; then, for an LSTM, their cells."""


class Recurrent(nn.Module):
    """Recurrent layers on top of each other; each output feeds the layer above.

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
        hidden: width of every layer
        layers: number of layers
        cell: "gru" or "lstm"
        residual: whether layers above the first add their input
        side: width of a side input that every layer gets beside its own, 0 for none
        dropout: of what every layer but the first reads, not of what it adds, in train mode
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        layers: int = 1,
        cell: str = "gru",
        residual: bool = False,
        side: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(dim=dim, hidden=hidden, layers=layers)
        check_dropout(dropout)
        make = find_cell(cell)
        widths = [dim, *[hidden] * (layers - 1)]
        self.layers = nn.ModuleList(make(w + side, hidden, batch_first=True) for w in widths)
        self.hidden, self.cell, self.dropout = hidden, cell, dropout
        self.parts = PARTS[cell]
        self.adds = [residual and layer > 0 for layer in range(layers)]

    def zero(self, batch: int, like: Tensor) -> Hidden:
        """A state of zeros."""
        return tuple(like.new_zeros(batch, self.hidden) for _ in range(self.parts * len(self)))

    def __len__(self) -> int:
        return len(self.layers)

    def forward(
        self, x: Tensor, hidden: Hidden, side: Tensor | None = None
    ) -> tuple[Tensor, Hidden]:
        """The whole sequence x (batch, T, dim) to (batch, T, hidden), and the last state.

        Args:
            hidden: the state before the first step
            side: (batch, T, side), what every layer gets beside its input
        """
        after = []
        for layer, own in enumerate(self._own(hidden)):
            below = x if layer == 0 else drop(x, self.dropout, self.training)
            joined = below if side is None else torch.cat((below, side), dim=-1)
            y, last = recur(self.layers[layer], joined, own)  # type: ignore[arg-type]
            after.append(last)
            x = x + y if self.adds[layer] else y
        return x, _flat(after)

    def step(self, x: Tensor, hidden: Hidden, side: Tensor | None = None) -> tuple[Tensor, Hidden]:
        """One step, x (batch, dim) to (batch, hidden), and the new state."""
        after = []
        for layer, own in enumerate(self._own(hidden)):
            below = x if layer == 0 else drop(x, self.dropout, self.training)
            joined = below if side is None else torch.cat((below, side), dim=-1)
            weights: Sequence[Tensor] = self.layers[layer].all_weights[0]  # type: ignore
            if self.parts == 1:
                new: Sequence[Tensor] = [torch.gru_cell(joined, own[0], *weights)]
            else:
                new = torch.lstm_cell(joined, own, *weights)
            after.append(list(new))
            x = x + new[0] if self.adds[layer] else new[0]
        return x, _flat(after)

    def _own(self, hidden: Hidden) -> list[list[Tensor]]:
        """The state, layer by layer."""
        return [list(hidden[layer :: len(self)]) for layer in range(len(self))]

    def extra_repr(self) -> str:
        return f"residual={self.adds}, dropout={self.dropout}"


def _flat(after: list[list[Tensor]]) -> Hidden:
    """States of layers as one tuple, h of all layers first."""
    return tuple(part for parts in zip(*after, strict=True) for part in parts)


def find_cell(cell: str) -> Callable[..., nn.RNNBase]:
    """A recurrent layer by name."""
    if cell not in CELLS:
        raise ValueError(f"unknown cell {cell!r}{did_you_mean(cell, CELLS)}")
    return CELLS[cell]
