"""Multi-head attention one head and one sequence at a time, following the equation."""

import math

import torch
from torch import Tensor

from regard.layers import (
    ALiBi,
    Learned,
    MultiHeadAttention,
    PositionalEncoding,
    RelativeBias,
    Rotary,
)

B, M, N, D, H = 3, 5, 7, 12, 6  # width 2 per head
POSITIONS = {
    "none": lambda: None,
    "sinusoidal": lambda: PositionalEncoding(D),
    "learned": lambda: Learned(D, max_length=40),
    "rotary": lambda: Rotary(D // H),
    "alibi": lambda: ALiBi(H),
    "relative": lambda: RelativeBias(H, buckets=8, max_distance=5),
}


def double(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def negative_distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


def longhand(
    layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, visible: Tensor
) -> tuple[Tensor, Tensor]:
    """[head_1 ; …] W_O and the maps, one head and one sequence at a time, scores q · k / √d."""
    width = layer.dim // layer.heads
    outputs, maps = [], []
    for b in range(len(query)):
        heads, weights = [], []
        for h in range(layer.heads):
            kv = h // (layer.heads // layer.kv_heads)
            q = layer.query_projection(query[b])[:, h * width : (h + 1) * width]
            k = layer.key_projection(key[b])[:, kv * width : (kv + 1) * width]
            v = layer.value_projection(value[b])[:, kv * width : (kv + 1) * width]
            q, k = layer.query_norm(q), layer.key_norm(k)
            scores = q @ k.T / math.sqrt(width)
            scores = scores.masked_fill(~visible[b, h], -math.inf)
            w = scores.softmax(-1).nan_to_num(0.0)  # a row that sees nothing
            heads.append(w @ v)
            weights.append(w)
        outputs.append(layer.output_projection(torch.cat(heads, dim=-1)))
        maps.append(torch.stack(weights))
    return torch.stack(outputs), torch.stack(maps)


def everything(b: int = B, h: int = H, m: int = M, n: int = N) -> Tensor:
    return torch.ones(b, h, m, n, dtype=torch.bool)


def steps(layer, x, state, **options):
    """The outputs of x (batch, length, dim) one position at a time, and the last state."""
    outputs = []
    for t in range(x.shape[1]):
        y, state = layer.step(x[:, t : t + 1], state, **options)
        outputs.append(y)
    return outputs, state
