"""The decoder-only language model."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.mask import causal
from regard.core.score import Score
from regard.layers.dropout import check_dropout, drop
from regard.layers.moves import Moves, as_moves
from regard.layers.multi_head import MultiHeadState
from regard.layers.role import MASKED_SELF
from regard.models.embedding import Tokens, tied
from regard.models.memory import Maps
from regard.models.position import positions
from regard.models.stack import EncoderStack
from regard.models.summary import summary


class LanguageState(NamedTuple):
    """What a language model remembers between two steps. A value, like `State`."""

    layers: tuple[MultiHeadState, ...]
    length: int  # steps taken
    weights: dict[str, Tensor] | None  # the last step's, (batch, heads, t); None if nobody asked

    def reorder(self, index: Tensor | Moves) -> "LanguageState":
        """The state of other beams: entry i becomes what entry index[i] was."""
        moves = as_moves(index, self.layers[0].batch)
        weights = self.weights
        if weights is not None:
            weights = {n: tensor.index_select(0, moves.index) for n, tensor in weights.items()}
        layers = tuple(layer.reorder(moves) for layer in self.layers)
        return LanguageState(layers, self.length, weights)


class LanguageModel(nn.Module):
    """Predict each token from those before it, with self-attention alone. Radford et al. 2018.

    >>> import torch
    >>> model = LanguageModel(13, dim=12, heads=3, hidden=24, layers=2, dropout=0.0)
    >>> ids = torch.randint(13, (2, 5))
    >>> features = model(ids)
    >>> first, state = model.step(ids[:, 0], model.start(batch=2))
    >>> torch.allclose(first, features[:, 0], atol=1e-5), model.output(features).shape
    (True, torch.Size([2, 5, 13]))

    Args:
        vocabulary: number of tokens
        dim: width of the stream
        heads: number of heads, a divisor of `dim`
        hidden: width inside the feed-forward networks
        layers: number of layers
        norm: "pre" or "post"
        position: "sinusoidal", "learned", "rotary", "alibi" or "none"
        max_length: how many learned positions there are
        tie: whether the output shares the matrix of the embedding
        dropout: of embeddings, hidden units, and what each sublayer adds
        attention_dropout: of the attention weights; `dropout` if None
        kv_heads, score, activation: of the layers
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        dim: int = 512,
        heads: int = 8,
        hidden: int = 2048,
        layers: int = 6,
        norm: str = "pre",
        position: str = "rotary",
        max_length: int = 512,
        tie: bool = True,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        kv_heads: int | None = None,
        score: str | Score = "scaled_dot",
        activation: Callable[[Tensor], Tensor] = F.gelu,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        check_dropout(dropout if attention_dropout is None else attention_dropout)
        self.reader = Tokens(vocabulary, dim, scale=math.sqrt(dim))
        self.position, own = positions(position, dim, heads, max_length)
        self.decoder = EncoderStack(
            layers,
            dim,
            norm=norm,
            attention_dropout=attention_dropout,
            heads=heads,
            hidden=hidden,
            kv_heads=kv_heads,
            score=score,
            position=own,
            activation=activation,
            dropout=dropout,
            role=MASKED_SELF,
        )
        self.output = nn.Linear(dim, vocabulary)
        self.dropout = dropout
        if tie:
            tied(self.output, self.reader)

    def forward(self, ids: Tensor, *, return_map: bool = False) -> Tensor | tuple[Tensor, Maps]:
        """Features (batch, T, dim) after each of the ids (batch, T); padding comes last.

        With `return_map` also the maps by the name of their module, (batch, heads, T, T) each.
        """
        x = self._drop(self.position(self.reader(ids)))
        x, maps = self.decoder(x, mask=causal(), return_map=return_map)
        return (x, {f"decoder.{name}": map for name, map in maps.items()}) if return_map else x

    def start(self, batch: int, *, return_map: bool = False) -> LanguageState:
        """The state before the first step; with `return_map` steps leave their weights in it."""
        return LanguageState(self.decoder.start(batch), 0, {} if return_map else None)

    def step(self, tokens: Tensor, state: LanguageState) -> tuple[Tensor, LanguageState]:
        """Features (batch, dim) after tokens (batch,), and the new state."""
        x = self._drop(self.position(self.reader(tokens.unsqueeze(1)), state.length))
        asked = state.weights is not None
        x, layers, found = self.decoder.step(x, state.layers, return_map=asked)
        kept = {f"decoder.{name}": weights for name, weights in found.items()} if asked else None
        return x.squeeze(1), LanguageState(layers, state.length + 1, kept)

    def summary(self) -> str:
        """Its parts with their numbers of parameters, as a table."""
        return summary(self)

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"
