"""What padding holds never matters: outputs and gradients are those of padding with zeros."""

import math

import pytest
import torch
from torch import nn

import regard
from regard import layers

B, N, D = 3, 23, 8
COUNTS = torch.tensor([N, 9, 1])
REAL = torch.arange(N) < COUNTS.unsqueeze(-1)  # (B, N)
KEYS, BOTH = regard.lengths(COUNTS), regard.lengths(COUNTS, COUNTS)


class Function(nn.Module):
    """A function of inputs as a layer without parameters."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs, **named):
        return self.function(*inputs, **named)


def attend_itself(function, **named):
    """A layer, and how it is called: on padded queries, keys and values."""
    return lambda: Function(function), lambda layer, x: layer(x, x, x, **named)


def attend_keys(function, **named):
    """The same for queries of its own, where a mask cannot hide queries."""
    return lambda: Function(function), lambda layer, x: layer(torch.ones(B, N, D), x, x, **named)


def memory(make, **named):
    """A layer, and how it is called: with queries of its own on padded keys and values."""
    return make, lambda layer, x: layer(torch.ones(B, N, D), x, **named)


def itself(make, **named):
    return make, lambda layer, x: layer(x, **named)


def stepped(layer, x):
    return layer.step(torch.ones(B, 1, D), layer.start(B, x, REAL))[0]


def co_attention(layer, x):
    found = layer(x, x.flip(0), left_mask=COUNTS, right_mask=COUNTS.flip(0))
    return torch.stack((found.left, found.right))


def aligned(layer, x):
    found = layer(x, x.flip(0), left_mask=COUNTS, right_mask=COUNTS.flip(0))
    return torch.stack((found.left, found.right.flip(0)))


def graph_of(layer, x):
    """Padded nodes are without an edge, in one graph of B components."""
    return layer(x.flatten(0, 1), mask=_real_pairs())


def graph_edges(layer, x):
    target, source = _real_pairs().nonzero().T
    return layer(x.flatten(0, 1), torch.stack((source, target)))


def _real_pairs():
    real, part = REAL.flatten(), torch.arange(B).repeat_interleave(N)
    return real & real.unsqueeze(-1) & (part == part.unsqueeze(-1))


def documents(layer, x):
    return layer(x.unsqueeze(0), word_lengths=COUNTS.unsqueeze(0)).document


CAUSAL = regard.causal()
VISIBLE = REAL.unsqueeze(-2)  # (B, 1, N)
CASES = {
    "attend": attend_itself(regard.attend, mask=BOTH),
    "attend additive": attend_itself(regard.attend, mask=BOTH, score=regard.Additive(D, D, 5)),
    "attend_linear": attend_keys(regard.attend_linear, mask=KEYS),
    "attend_linear bool": attend_keys(regard.attend_linear, mask=VISIBLE),
    "attend_linear causal": attend_keys(regard.attend_linear, mask=KEYS, causal=True),
    "attend_linear decay": attend_keys(
        regard.attend_linear, mask=KEYS, causal=True, log_decay=-0.1
    ),
    "attend_features": attend_itself(regard.attend_features, mask=BOTH),
    "attend_features causal": attend_itself(regard.attend_features, mask=BOTH & CAUSAL),
    "attend_features bool": attend_itself(regard.attend_features, mask=BOTH.dense(N, N)),
    "multi-head": itself(lambda: layers.MultiHeadAttention(D, 2), mask=BOTH),
    "multi-head memory": memory(lambda: layers.MultiHeadAttention(D, 2), mask=KEYS),
    "latent": itself(lambda: layers.LatentAttention(D, 2, latent=4, rotary=2), mask=BOTH),
    "differential": itself(lambda: layers.DifferentialAttention(D, 2), mask=BOTH),
    "efficient": memory(lambda: layers.EfficientAttention(D, 2), mask=KEYS),
    "efficient causal": memory(lambda: layers.EfficientAttention(D, 2), mask=KEYS & CAUSAL),
    "efficient step": (lambda: layers.EfficientAttention(D, 2), stepped),
    "multi-dimensional": itself(lambda: layers.MultiDimensionalAttention(D), mask=BOTH),
    "multi-dimensional causal": itself(
        lambda: layers.MultiDimensionalAttention(D), mask=BOTH & CAUSAL
    ),
    "multi-dimensional memory": memory(lambda: layers.MultiDimensionalAttention(D), mask=KEYS),
    "source to token": itself(lambda: layers.SourceToToken(D), mask=COUNTS),
    "local": itself(lambda: layers.LocalAttention(D, 2), mask=BOTH),
    "local dropout": itself(lambda: layers.LocalAttention(D, 2, dropout=0.5), mask=BOTH),
    "local predicted": memory(
        lambda: layers.LocalAttention(D, 2, center=layers.PredictedCenter(D)), mask=KEYS
    ),
    "local predicted itself": itself(
        lambda: layers.LocalAttention(D, 2, center=layers.PredictedCenter(D)), mask=BOTH
    ),
    "local step": (lambda: layers.LocalAttention(D, 2), stepped),
    "hard": itself(lambda: layers.HardAttention(D), mask=BOTH),
    "hard memory": memory(lambda: layers.HardAttention(D), mask=KEYS),
    "co": (lambda: layers.CoAttention(D, D, 5), co_attention),
    "co aligned": (lambda: layers.AlignedCoAttention(D, D), aligned),
    "co alternating": (lambda: layers.AlternatingCoAttention(D, D, 5), co_attention),
    "pooling": itself(lambda: layers.AttentionPooling(D), mask=COUNTS),
    "hierarchical": (lambda: layers.HierarchicalAttention(D), documents),
    "graph gat": (lambda: layers.GraphAttention(D, 5, 2), graph_of),
    "graph gatv2": (lambda: layers.GraphAttention(D, 5, 2, score="gatv2"), graph_of),
    "graph gat edges": (lambda: layers.GraphAttention(D, 5, 2), graph_edges),
    "graph gatv2 edges": (lambda: layers.GraphAttention(D, 5, 2, score="gatv2"), graph_edges),
}


@pytest.mark.parametrize("padding", [math.nan, math.inf, 1e25, -3e38])
@pytest.mark.parametrize("case", CASES)
def test_padding_changes_neither_output_nor_gradients(case, padding):
    make, call = CASES[case]
    torch.manual_seed(0)
    layer = make()
    x = torch.randn(B, N, D)
    results = []
    for hidden in (0.0, padding):
        inputs = torch.where(REAL.unsqueeze(-1), x, hidden).requires_grad_()
        torch.manual_seed(1)
        output = call(layer, inputs)
        upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(2))
        if output.shape[:2] == (B, N):  # what follows ignores the outputs of padding
            output, upstream = output[REAL], upstream[REAL]
        differentiated = (inputs, *layer.parameters())
        results.append((output, *torch.autograd.grad(output, differentiated, upstream)))
    for zero, found in zip(*results, strict=True):
        torch.testing.assert_close(found, zero, atol=1e-5, rtol=1e-4)


def test_sparse_nodes_of_a_graph_give_the_same_output():
    layer = layers.GraphAttention(D, 5, 2)
    nodes, edges = torch.randn(4, D), torch.tensor([[0, 1], [1, 0]])
    torch.testing.assert_close(layer(nodes.to_sparse(), edges), layer(nodes, edges))
