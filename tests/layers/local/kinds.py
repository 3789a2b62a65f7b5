"""Local attention of every kind, and its equations written out."""

import math

import torch
from torch import Tensor, nn

from regard.layers import LocalAttention, PredictedCenter

B, DIM, KEY, VALUE = 3, 5, 7, 11
SIZES = [(7, 7, 2), (7, 13, 2), (13, 7, 3), (3, 2, 5), (67, 71, 3), (1, 29, 1), (29, 31, 0)]


def double(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def negative_distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query.unsqueeze(-2) - key[..., :DIM].unsqueeze(-3)).square().sum(-1)


def monotonic(window: int, **options) -> LocalAttention:
    return LocalAttention(DIM, window, **options).double()


def predictive(window: int, **options) -> LocalAttention:
    center = PredictedCenter(DIM, 3)
    nn.init.normal_(center.outer.weight, std=3.0)  # centres all over the sentence
    return LocalAttention(DIM, window, center=center, **options).double()


class Opaque(nn.Module):
    """A score into which no path can look: its windows go in chunks."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(query_dim, key_dim))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ self.weight @ key.transpose(-1, -2)


def in_chunks(window: int, key_dim: int = DIM, **options) -> LocalAttention:
    options = {"score": Opaque(DIM, key_dim), **options}
    return LocalAttention(DIM, window, key_dim=key_dim, **options).double()


KINDS = {"monotonic": monotonic, "in chunks": in_chunks, "predictive": predictive}


def longhand(
    layer: LocalAttention,
    query: Tensor,
    key: Tensor,
    visible: Tensor,
    ends: Tensor,
    offset: int = 0,
) -> Tensor:
    """The map of eq. 7 to 10, (B, M, N), one cell at a time in spirit: everything is M × N.

    Args:
        ends: S, how far each query may see, (B, M)
    """
    M, N, D = query.shape[1], key.shape[1], layer.window
    place = torch.arange(N)
    if layer.center is None:
        p = (torch.arange(M) + offset).double().view(1, M, 1)
    else:
        hidden = torch.tanh(query @ layer.center.inner.weight.T)
        p = ends.unsqueeze(-1) * torch.sigmoid(hidden @ layer.center.outer.weight.T)
    scores = layer.score(query, key)
    seen = visible & (place >= p - D) & (place <= p + D)
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    weights = weights.masked_fill(~seen, 0.0)  # a row that sees nothing is zero, not NaN
    if layer.center is not None:
        weights = weights * torch.exp(-((place - p) ** 2) / (2 * (D / 2) ** 2))
    return weights
