"""Multi-dimensional attention against Shen et al. 2018 (DiSAN), written out."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import regard
from regard.layers import MultiDimensionalAttention, SourceToToken

B, M, N, D, K, V = 2, 5, 7, 3, 11, 13


def make(**options):
    torch.manual_seed(0)
    return MultiDimensionalAttention(D, **options).double()


def tokens(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64)


def token_to_token(layer, query, key, value, visible):
    """s_ij = c tanh((W₁ x_i + W₂ x_j + b) / c), softmax over j, Σ_j P_ij ⊙ v_j, pair by pair."""
    W1, b, W2, c = (
        layer.query_projection.weight,
        layer.query_projection.bias,
        layer.key_projection.weight,
        layer.scale,
    )
    nothing = torch.zeros(value.shape[-1], dtype=value.dtype)
    rows = []
    for i, q in enumerate(query):
        seen = [j for j in range(len(key)) if visible[i, j]]
        exponents = {j: (c * torch.tanh((W1 @ q + W2 @ key[j] + b) / c)).exp() for j in seen}
        total = sum(exponents.values(), nothing)
        rows.append([exponents[j] / total if j in seen else nothing for j in range(len(key))])
    weights = [torch.stack(row, -1) if row else value.new_zeros(len(nothing), 0) for row in rows]
    weights = torch.stack(weights, 1)  # (D, M, N)
    output = torch.stack([sum(map(torch.mul, row, value), nothing) for row in rows])
    return output, weights


MASKS = {
    "none": (None, torch.ones(M, N, dtype=torch.bool)),
    "causal": (regard.causal(), torch.ones(M, N, dtype=torch.bool).tril(N - M)),
    "strictly before": (regard.causal(offset=-1), torch.ones(M, N, dtype=torch.bool).tril(-1)),
    "strictly after": (~regard.causal(offset=0), torch.ones(M, N, dtype=torch.bool).triu(1)),
    "gaps": (torch.arange(M * N).view(M, N) % 3 > 0, torch.arange(M * N).view(M, N) % 3 > 0),
}


@pytest.mark.parametrize("name", MASKS)
def test_it_is_the_equation_of_the_paper(name):
    mask, visible = MASKS[name]
    layer = make(key_dim=K, value_dim=V, scale=2.0)
    query, key, value = tokens(B, M, D), tokens(B, N, K), tokens(B, N, V)
    output, map = layer(query, key, value, mask=mask, return_map=True)
    assert map.shape == (B, V, M, N)
    for b in range(B):
        expected, weights = token_to_token(layer, query[b], key[b], value[b], visible)
        torch.testing.assert_close(output[b], expected)
        torch.testing.assert_close(map.dense()[b], weights)
    assert layer(query, key, value, mask=mask).equal(output)


@settings(max_examples=12)
@given(st.lists(st.integers(0, M), min_size=2, max_size=3), st.floats(0.5, 7))
def test_any_padding_agrees_with_one_sequence_at_a_time(lengths, scale):
    layer = make(scale=scale)
    x = tokens(len(lengths), M, D)
    output = layer(x, mask=regard.lengths(lengths))
    for b, length in enumerate(lengths):
        visible = torch.ones(M, length, dtype=torch.bool)
        expected, _ = token_to_token(layer, x[b], x[b, :length], x[b, :length], visible)
        torch.testing.assert_close(output[b], expected)


def test_the_gradient_is_that_of_the_equation():
    layer = make(key_dim=K, value_dim=V)
    inputs = [tokens(B, M, D), tokens(B, N, K), tokens(B, N, V)]
    inputs = [x.requires_grad_() for x in inputs]
    everything = [*inputs, *layer.parameters()]
    query, key, value = inputs
    mask, visible = MASKS["causal"]
    found = layer(*inputs, mask=mask).square().sum()
    expected = sum(
        token_to_token(layer, query[b], key[b], value[b], visible)[0].square().sum()
        for b in range(B)
    )
    gradients = torch.autograd.grad(found, everything)
    for gradient, other in zip(gradients, torch.autograd.grad(expected, everything), strict=True):
        torch.testing.assert_close(gradient, other)


def test_without_a_key_it_attends_to_itself():
    layer, x = make(), tokens(B, M, D)
    assert layer(x).equal(layer(x, x, x))
    assert layer(x, x).equal(layer(x, x, x))


def test_each_feature_has_a_distribution_of_its_own():
    _, map = make()(tokens(B, M, D), return_map=True)
    torch.testing.assert_close(map.dense().sum(-1), torch.ones(B, D, M, dtype=torch.float64))
    assert not torch.allclose(map[:, 0], map[:, 1])


def test_the_scale_bounds_the_scores():
    layer = make(scale=0.7)
    _, map = layer(1e3 * tokens(B, M, D), return_map=True)
    assert map.scores.dense().abs().max() <= 0.7


def test_a_key_hidden_from_all_queries_may_hold_anything():
    layer = make(key_dim=K)
    query, key = tokens(B, M, D), tokens(B, N, K)
    lengths = torch.tensor([N, 3])

    def run(key):
        key = key.clone().requires_grad_()
        output = layer(query, key, mask=regard.lengths(lengths))
        return output, torch.autograd.grad(output.square().sum(), [key, *layer.parameters()])

    clean, expected = run(key)
    for rubbish in (torch.nan, torch.inf):
        key[1, 3:] = rubbish
        dirty, gradients = run(key)
        assert dirty.equal(clean)
        for gradient, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient, other)


def test_sequences_of_a_batch_do_not_influence_each_other():
    torch.manual_seed(2)
    layer, x = MultiDimensionalAttention(17), torch.randn(3, 67, 17)
    mask = regard.lengths([67, 31, 11])
    before = layer(x, mask=mask)
    x[1] = torch.randn(67, 17)
    after = layer(x, mask=mask)
    assert after[[0, 2]].equal(before[[0, 2]])
    assert not after[1].equal(before[1])


@pytest.mark.parametrize("mask", [None, regard.causal(), regard.causal() & regard.lengths([2000])])
def test_long_inputs_need_no_memory_for_every_pair_and_feature(mask, peak_memory):
    torch.manual_seed(0)
    layer, x = MultiDimensionalAttention(32), torch.randn(1, 2048, 32, requires_grad=True)
    short = None if mask is None else regard.causal()
    layer(x[:, :100], mask=short, return_map=True).output.sum().backward()  # loaded once
    with peak_memory() as peak:
        output, map = layer(x, mask=mask, return_map=True)
        output.sum().backward()
        assert map[0, 0, 1000].shape == (2048,)
    assert peak[0] < 150e6  # every pair and feature: 537 MB


# ------------------------------------------------------------------ source to token


def source_to_token(layer, x):
    """s_j = Wᵀ σ(W₁ x_j + b₁) + b, softmax over j, Σ_j P_j ⊙ x_j."""
    exponents = [layer.outer(F.elu(layer.inner(row))).exp() for row in x]
    return sum(e * row for e, row in zip(exponents, x, strict=True)) / sum(exponents)


@settings(max_examples=12)
@given(st.lists(st.integers(0, N), min_size=2, max_size=3))
def test_source_to_token_is_the_equation_of_the_paper(lengths):
    torch.manual_seed(0)
    layer, x = SourceToToken(D, K).double(), tokens(len(lengths), N, D)
    output, map = layer(x, mask=torch.tensor(lengths), return_map=True)
    assert map.shape == (len(lengths), D, 1, N)
    torch.testing.assert_close((map.dense() @ x.mT.unsqueeze(-1)).flatten(1), output)
    for b, length in enumerate(lengths):
        if length:
            torch.testing.assert_close(output[b], source_to_token(layer, x[b, :length]))
        else:
            assert not output[b].any()
        assert not map.dense()[b, ..., length:].any()


def test_source_to_token_takes_lengths_booleans_and_masks():
    torch.manual_seed(0)
    layer, x = SourceToToken(D), torch.randn(3, N, D)
    count = torch.tensor([7, 3, 0])
    expected = layer(x, mask=count)
    assert layer(x, mask=torch.arange(N) < count.unsqueeze(-1)).equal(expected)
    assert layer(x, mask=regard.lengths(count)).equal(expected)


def test_source_to_token_does_not_see_padding():
    torch.manual_seed(0)
    layer, x = SourceToToken(D), torch.randn(3, N, D)
    count = torch.tensor([7, 3, 0])
    hidden = (torch.arange(N) >= count.unsqueeze(-1)).unsqueeze(-1)

    def run(x):
        output = layer(x, mask=count)
        return output, torch.autograd.grad(output.square().sum(), layer.parameters())

    clean, expected = run(x)
    dirty, gradients = run(x.masked_fill(hidden, torch.nan))
    assert dirty.equal(clean)
    assert all(map(torch.equal, gradients, expected))


def test_source_to_token_is_large_as_well_as_small():
    torch.manual_seed(0)
    layer = SourceToToken(17).double()
    x = torch.randn(2, 301, 17, dtype=torch.float64)
    output = layer(x, mask=torch.tensor([301, 57]))
    torch.testing.assert_close(output[1], source_to_token(layer, x[1, :57]))


# ------------------------------------------------------------------ both

BOTH = pytest.mark.parametrize("kind", [MultiDimensionalAttention, SourceToToken])


@BOTH
def test_autocast_keeps_the_dtype_of_the_values(kind):
    with torch.autocast("cpu", torch.bfloat16):
        assert kind(D)(torch.randn(B, N, D)).dtype == torch.float32


def test_a_bad_configuration_raises_a_helpful_error():
    with pytest.raises(ValueError, match="key_dim must be 1 or more, got 0"):
        MultiDimensionalAttention(3, key_dim=0)
    for scale in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="scale, the bound of the scores, must be above 0"):
            MultiDimensionalAttention(3, scale=scale)
    with pytest.raises(ValueError, match="hidden must be 1 or more, got 0"):
        SourceToToken(3, 0)


def test_bad_inputs_raises_a_helpful_error():
    layer = make(key_dim=K, value_dim=V)
    with pytest.raises(ValueError, match=r"query should be \(batch, length, 3\)"):
        layer(tokens(B, M, K), tokens(B, N, K), tokens(B, N, V))
    with pytest.raises(ValueError, match=r"key should be \(batch, length, 11\), got \(2, 5, 3\)"):
        layer(tokens(B, M, D))
    with pytest.raises(ValueError, match=r"value should be .* 13\), got .* value_dim"):
        layer(tokens(B, M, D), tokens(B, N, K))
    with pytest.raises(ValueError, match=r"x should be \(batch, length, 3\)"):
        SourceToToken(D)(torch.randn(B, N, K))
