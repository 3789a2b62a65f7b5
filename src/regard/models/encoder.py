"""The recurrent encoder: a source becomes one state for each of its positions."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from regard.core.names import did_you_mean
from regard.layers.dropout import check_dropout, drop
from regard.layers.recurrence import recur
from regard.models.embedding import Frames, Tokens, check_sizes
from regard.models.memory import Memory, real, without_padding
from regard.models.recurrent import PARTS, find_cell

DIRECTIONS = {"none": 0, "bottom": 1, "all": -1}
"""How many layers, from the bottom, read in both directions."""


class Encoder(nn.Module):
    """Recurrent layers over the source, in one direction or in both.

        h(j) = [→h(j) ; ←h(j)]                            Bahdanau et al. 2015, section 3.2

    With `bidirectional="bottom"` and `residual=True` it is the deep encoder of Wu et al. 2016,
    section 3.2: the first layer reads both ways, the others one way, and from the third layer on
    each adds its input to its output.

    >>> encoder = Encoder(Tokens(13, 3), hidden=5, bidirectional="all")
    >>> memory = encoder(torch.randint(13, (2, 7)), torch.tensor([7, 4]))
    >>> memory.states.shape, [tuple(part.shape) for part in memory.final]
    (torch.Size([2, 7, 10]), [(2, 10)])

    Args:
        reader: what makes vectors of the source, `Tokens` or `Frames`
        hidden: width of every layer, in each of its directions
        layers: number of layers
        cell: "gru" or "lstm"
        bidirectional: which layers read in both directions: "none", "bottom" or "all"
        residual: whether layers above the first add their input, where the widths agree
        dropout: of the input of every layer but the first, in train mode
    """

    def __init__(
        self,
        reader: Tokens | Frames,
        hidden: int,
        *,
        layers: int = 1,
        cell: str = "gru",
        bidirectional: str = "none",
        residual: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(hidden=hidden, layers=layers)
        check_dropout(dropout)
        make = find_cell(cell)
        if bidirectional not in DIRECTIONS:
            raise ValueError(
                f"unknown bidirectional {bidirectional!r}{did_you_mean(bidirectional, DIRECTIONS)}"
            )
        both = DIRECTIONS[bidirectional] % (layers + 1)
        outs = [hidden * (2 if layer < both else 1) for layer in range(layers)]
        ins = [reader.dim, *outs[:-1]]
        self.reader = reader
        self.layers = nn.ModuleList(
            make(width, hidden, batch_first=True, bidirectional=layer < both)
            for layer, width in enumerate(ins)
        )
        self.adds = [False, *(residual and i == o for i, o in pairwise(outs))]
        self.cell, self.parts, self.widths, self.dropout = cell, PARTS[cell], outs, dropout
        self.bidirectional = [layer < both for layer in range(layers)]

    @property
    def width(self) -> int:
        """Width of the states."""
        return self.widths[-1]

    def forward(self, source: Tensor, source_lengths: Tensor | None = None) -> Memory:
        """Read the source.

        Args:
            source: token ids (batch, S), or float frames (batch, S, width)
            source_lengths: how many of them are real, (batch,); all if None

        Returns: a `Memory` whose `final` are the last states of all layers, bottom first, then,
            for an LSTM, their cells; a layer of both directions joins its two ends, and the end of
            an empty sentence is zero
        """
        counts = real(source, source_lengths)
        if not source.shape[1]:
            raise ValueError(f"a source needs a position, real or not, got {tuple(source.shape)}")
        if source.is_floating_point():
            source = without_padding(source, counts)
        x = self.reader(source)
        even = bool((counts == source.shape[1]).all())
        ends: list[list[Tensor]] = []
        for layer, run in enumerate(self.layers):
            below = x if layer == 0 else drop(x, self.dropout, self.training)
            y, end = recur(run, below, counts=None if even else counts)  # type: ignore[arg-type]
            ends.append(end)  # (batch, width) each
            x = x + y if self.adds[layer] else y
        final = [part for parts in zip(*ends, strict=True) for part in parts]
        if not even:
            x = without_padding(x, counts)
            final = [torch.where(counts.unsqueeze(1) > 0, part, 0.0) for part in final]
        return Memory(x, counts, tuple(final))
