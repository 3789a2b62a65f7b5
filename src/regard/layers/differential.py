"""Differential attention: the difference of two maps, in which common noise cancels."""

import math

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.attention.observer import observed
from regard.core.map import AttentionMap
from regard.core.mask import Mask, causal
from regard.layers.cache import Past
from regard.layers.masking import mask_over_heads, zero_hidden_inputs


class DifferentialAttention(nn.Module):
    """Self-attention by the difference of two softmax maps in every head.

        head_i = (1 − λ_init) · RMSNorm( (softmax(Q₁K₁ᵀ/√d) − λ softmax(Q₂K₂ᵀ/√d)) V )
        λ = exp(λ_q1 · λ_k1) − exp(λ_q2 · λ_k2) + λ_init

    Ye et al. 2024 (arXiv 2410.05258), eq. 1-3. A head has two queries and keys of width d and
    values of width 2d. The rows of its map sum to 1 − λ and may have negative entries.

    >>> layer = DifferentialAttention(12, heads=3)
    >>> x = torch.randn(2, 7, 12)
    >>> layer(x, mask=causal()).shape
    torch.Size([2, 7, 12])
    >>> y, state = layer.step(x[:, :1], layer.start(2))
    >>> torch.allclose(y, layer(x, mask=causal())[:, :1], atol=1e-6)
    True

    Args:
        dim: width of input and output
        heads: number of heads; dim must be a multiple of 2 · heads
        layer: depth of the layer from 1 on, which sets λ_init = 0.8 − 0.6 exp(−0.3 (layer − 1))
        dropout: of both maps, in train mode
    """

    def __init__(self, dim: int, heads: int, *, layer: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or dim % (2 * heads):
            raise ValueError(
                f"dim must be a multiple of 2 · heads, got dim {dim} and {heads} heads"
            )
        self.heads, self.head_dim, self.dropout = heads, dim // (2 * heads), dropout
        self.initial = 0.8 - 0.6 * math.exp(-0.3 * (layer - 1))
        self.query_projection = nn.Linear(dim, dim, bias=False)
        self.key_projection = nn.Linear(dim, dim, bias=False)
        self.value_projection = nn.Linear(dim, dim, bias=False)
        self.output_projection = nn.Linear(dim, dim, bias=False)
        self.norm = nn.RMSNorm(2 * self.head_dim)
        # λ_q and λ_k of both maps, (2, d) each
        self.lambda_query = nn.Parameter(torch.randn(2, self.head_dim) * 0.1)
        self.lambda_key = nn.Parameter(torch.randn(2, self.head_dim) * 0.1)

    def balance(self) -> Tensor:
        """λ, the weight of the second map."""
        first, second = (self.lambda_query * self.lambda_key).sum(-1).exp()
        return first - second + self.initial

    @observed
    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | None = None, return_map: bool = False
    ) -> Tensor | Attended:
        """Attend among the positions of x.

        Args:
            x: (batch, N, dim)
            mask: a Mask, or bool with True = may attend
            return_map: also return the lazy map of the differences, (batch, heads, N, N)

        Returns: (batch, N, dim), or `Attended(output, map)`
        """
        mask = None if mask is None else mask_over_heads(mask)
        queries, keys, _ = zero_hidden_inputs(x, x, x, mask)
        output, map = self._attend(self._queries(queries), *self._keys_and_values(keys), mask)
        return Attended(output, map) if return_map else output

    def start(self, batch: int) -> Past:
        """The state before the first step: an empty cache."""
        return Past(batch)

    @observed
    def step(self, x: Tensor, state: Past) -> tuple[Tensor, Past]:
        """One or more positions of the pass under `causal()`.

        Args:
            x: (batch, steps, dim)
            state: from `start` or the last step; it stays valid

        Returns: (batch, steps, dim) and the new state
        """
        state = state.append(*self._keys_and_values(x))
        mask = causal() if x.shape[1] > 1 else None
        key, value = state.tensors
        output, _ = self._attend(self._queries(x), key, value, mask)
        return output, state

    def _queries(self, x: Tensor) -> Tensor:
        """(batch, 2 · heads, N, d): all first queries, then all second ones."""
        return self._split(self.query_projection(x))

    def _keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (batch, 2 · heads, N, d) and values (batch, heads, N, 2d)."""
        value = self.value_projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self._split(self.key_projection(x)), value

    def _split(self, x: Tensor) -> Tensor:
        halves = x.unflatten(-1, (self.heads, 2, self.head_dim))  # (batch, N, heads, 2, d)
        return halves.permute(0, 3, 2, 1, 4).flatten(1, 2)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None
    ) -> tuple[Tensor, AttentionMap]:
        dropout = self.dropout if self.training else 0.0
        contexts, maps = attend(
            query, key, value.repeat(1, 2, 1, 1), mask=mask, dropout=dropout, return_map=True
        )
        balance = self.balance()
        first, second = contexts.unflatten(1, (2, self.heads)).unbind(1)
        context = (1 - self.initial) * self.norm(first - balance * second)
        output = self.output_projection(context.transpose(1, 2).flatten(-2))

        def rows(which: slice) -> Tensor:
            first, second = maps[..., which, :].unflatten(1, (2, self.heads)).unbind(1)
            return first - balance * second

        *_, M, N = maps.shape
        return output, AttentionMap(rows, None, (len(output), self.heads, M, N))
