"""A model that reads a single position, and learns which one by one of three estimators."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import attend
from regard.attention.observer import observed
from regard.core.mask import lengths as of_lengths
from regard.core.names import check_name
from regard.layers.checks import check_sizes
from regard.layers.hard import HardAttention, HardGumbel, MovingBaseline, straight_through
from regard.models.embedding import Tokens

ESTIMATORS: dict[str, Callable[[float], Callable[..., Tensor]] | None] = {
    "straight_through": lambda temperature: straight_through,
    "gumbel": HardGumbel,
    "reinforce": None,  # no gradient through the choice; see `reinforce_loss`
}
"""Estimators by name: from a temperature to a normalizer."""


class HardOutput(NamedTuple):
    """What a reader predicts from the position it chose."""

    logits: Tensor  # (B, classes)
    chosen: Tensor  # (B,), the position
    log_probability: Tensor  # (B,), of the choice
    entropy: Tensor  # (B,), of the distribution over positions, in nats


class HardReader(nn.Module):
    """Choose one position of a row of marked symbols, and predict the symbol there.

        s ~ Multinoulli(softmax(q W kᵢ)),  logits = W_o v_s

    Keys hold symbol and mark, values the symbol only: the model has to find the right position.
    Hard attention as in Xu et al. 2015, section 4.1.

    >>> reader = HardReader(symbols=10, marks=5, estimator="gumbel")
    >>> row = torch.zeros(2, 7, dtype=torch.long)
    >>> reader(row, row, torch.tensor([7, 3])).logits.shape
    torch.Size([2, 10])

    Args:
        symbols: number of symbols, and of classes
        marks: number of marks
        dim: width of the vectors
        estimator: "straight_through", "gumbel" or "reinforce"
        temperature: of "gumbel"
    """

    def __init__(
        self,
        symbols: int,
        marks: int,
        *,
        dim: int = 32,
        estimator: str = "straight_through",
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(symbols=symbols, marks=marks, dim=dim)
        check_name("estimator", estimator, ESTIMATORS)
        self.symbols, self.marks = Tokens(symbols, dim), Tokens(marks, dim)
        # small, so that no position is preferred before training
        self.query = nn.Parameter(torch.randn(1, dim) / math.sqrt(dim))
        make = ESTIMATORS[estimator]
        options: dict[str, Any] = {} if make is None else {"estimator": make(temperature)}
        self.attention = HardAttention(dim, **options)
        self.output = nn.Linear(dim, symbols)
        self.baseline = MovingBaseline()  # of the rewards of "reinforce"
        self.estimator = estimator

    def forward(self, symbols: Tensor, marks: Tensor, lengths: Tensor) -> HardOutput:
        """Predict the marked symbol of each row.

        Args:
            symbols: integers (B, N)
            marks: integers (B, N)
            lengths: of the rows, (B,)
        """
        query, key, values = self._embed(symbols, marks)
        mask = of_lengths(lengths)
        if self.estimator == "reinforce" or not self.training:
            choice = self.attention.choose(query, key, values, mask=mask)
            value, chosen = choice.output, choice.chosen
            likely, entropy = choice.log_probability, choice.entropy
        else:
            value, map = self.attention(query, key, values, mask=mask, return_map=True)
            chosen = map.dense().argmax(-1)
            likely, entropy = torch.zeros_like(chosen, dtype=value.dtype), map.entropy()
        return HardOutput(
            self.output(value.squeeze(-2)),
            chosen.squeeze(-1),
            likely.squeeze(-1),
            entropy.squeeze(-1),
        )

    @observed
    def probabilities(self, symbols: Tensor, marks: Tensor, lengths: Tensor) -> Tensor:
        """The probability of each position: softmax of the scores, (B, N)."""
        query, key, value = self._embed(symbols, marks)
        score = self.attention.score
        attended = attend(query, key, value, score=score, mask=of_lengths(lengths), return_map=True)
        return attended.map.dense().squeeze(-2)

    def _embed(self, symbols: Tensor, marks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The query (B, 1, dim), keys and values (B, N, dim)."""
        if symbols.shape != marks.shape or symbols.dim() != 2:
            raise ValueError(
                f"symbols and marks should both be (rows, N), got {tuple(symbols.shape)} and "
                f"{tuple(marks.shape)}"
            )
        value = self.symbols(symbols)
        return self.query.expand(len(value), 1, -1), value + self.marks(marks), value

    def extra_repr(self) -> str:
        return f"estimator={self.estimator!r}"
