"""Pooling by learned queries: the equations of PMA, and torch as an oracle."""

import pytest
import torch
from torch import nn

import regard
from regard.layers import PoolingAttention

B, N, D, H, Q, E = 3, 7, 12, 3, 5, 11


def longhand(pool: PoolingAttention, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """MultiHead(S, X, X), head by head, over the real elements of each set alone."""
    layer = pool.attention
    outputs = []
    for entry, size in zip(x, real.tolist(), strict=True):
        q = layer.query_projection(pool.queries)
        k, v = (p(entry[:size]) for p in (layer.key_projection, layer.value_projection))
        heads = []
        for a, b, c in zip(q.chunk(H, -1), k.chunk(H, -1), v.chunk(H, -1), strict=True):
            heads.append(torch.softmax(a @ b.T / (D // H) ** 0.5, -1) @ c if size else 0 * a)
        outputs.append(layer.output_projection(torch.cat(heads, -1)))
    return torch.stack(outputs)


def test_it_is_the_equation_for_padded_and_empty_sets_forward_and_backward() -> None:
    torch.manual_seed(0)
    pool = PoolingAttention(D, H, queries=Q, input_dim=E).double()
    x = torch.randn(B, N, E, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([N, 4, 0])
    leaves = [x, *pool.parameters()]
    found, truth = pool(x, mask=regard.lengths(real)), longhand(pool, x, real)
    torch.testing.assert_close(found, truth)
    upstream = torch.randn_like(truth)
    for a, b in zip(
        torch.autograd.grad(found, leaves, upstream),
        torch.autograd.grad(truth, leaves, upstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_pma_is_torch_multihead_attention_between_its_norms() -> None:
    torch.manual_seed(0)
    oracle = nn.MultiheadAttention(D, H, batch_first=True).double()
    pool = PoolingAttention(D, H, queries=Q).double()
    pool.attention = regard.layers.MultiHeadAttention.from_torch(oracle)
    inner, outer = nn.LayerNorm(D).double(), nn.LayerNorm(D).double()
    forward, before = nn.Linear(D, D).double(), nn.Linear(D, D).double()
    z = torch.randn(B, N, D, dtype=torch.float64)

    def mab(pooled: torch.Tensor) -> torch.Tensor:  # Lee et al. 2019, eq. 6-7
        h = inner(pool.queries + pooled)
        return outer(h + forward(h).relu())

    y = before(z).relu()
    seeds = pool.queries.expand(B, Q, D)
    torch.testing.assert_close(mab(pool(y)), mab(oracle(seeds, y, y)[0]))


def test_the_order_of_a_set_does_not_matter_and_its_map_is_seen() -> None:
    torch.manual_seed(0)
    pool = PoolingAttention(D, H, queries=Q)
    x, order = torch.randn(B, N, D), torch.randperm(N)
    torch.testing.assert_close(pool(x), pool(x[:, order]))
    with regard.capture(pool) as trace:
        output, map = pool(x, return_map=True)
    assert output.shape == (B, Q, D)
    assert map.shape == (B, H, Q, N)
    torch.testing.assert_close(map.dense().sum(-1), torch.ones(B, H, Q))
    assert len(trace) == 1


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="queries"):
        PoolingAttention(D, H, queries=0)
    with pytest.raises(ValueError, match="heads"):
        PoolingAttention(D, 5)
    with pytest.raises(ValueError, match="key"):
        PoolingAttention(D, H, input_dim=E)(torch.randn(B, N, D))
