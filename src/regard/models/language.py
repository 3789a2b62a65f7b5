"""The decoder-only language model."""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.mask import causal
from regard.core.score import Score
from regard.layers.checks import check_dropout
from regard.layers.dropout import Dropout
from regard.layers.role import MASKED_SELF
from regard.layers.transformer import EncoderLayer
from regard.models.embedding import Tokens, tie_weights
from regard.models.options import find_positions
from regard.models.stack import Stack, StackState


class LanguageModel(nn.Module):
    """Predict each token from those before it, with self-attention only. Radford et al. 2018.

    >>> import torch
    >>> model = LanguageModel(13, dim=12, heads=3, hidden=24, layers=2, dropout=0.0)
    >>> ids = torch.randint(13, (2, 5))
    >>> features = model(ids)
    >>> first, state = model.step(ids[:, 0], model.start(batch=2))
    >>> torch.allclose(first, features[:, 0], atol=1e-5), model.output(features).shape
    (True, torch.Size([2, 5, 13]))

    Args:
        vocabulary: number of tokens
        tie: whether the output shares the matrix of the embedding
        dim, heads, hidden, layers, norm, position, max_length, dropout, attention_dropout,
            kv_heads, score, activation: as for `Transformer`
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
        check_dropout(dropout if attention_dropout is None else attention_dropout)
        self.embedding = Tokens(vocabulary, dim, scale=math.sqrt(dim))
        self.position, own = find_positions(position, dim, heads, max_length, causal=True)
        self.decoder = Stack(
            EncoderLayer,
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
        self.drop = Dropout(dropout)
        if tie:
            tie_weights(self.output, self.embedding)

    def forward(self, ids: Tensor) -> Tensor:
        """Features (batch, T, dim) after each of the ids (batch, T); padding comes last."""
        return self.decoder(self.drop(self.position(self.embedding(ids))), mask=causal())

    def start(self, batch: int) -> StackState:
        """The state before the first step."""
        return self.decoder.start(batch)

    def step(self, tokens: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        """Features (batch, dim) after tokens (batch,), and the new state."""
        x = self.drop(self.position(self.embedding(tokens.unsqueeze(1)), state.length))
        x, state = self.decoder.step(x, state)
        return x.squeeze(1), state
