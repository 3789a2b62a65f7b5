"""Multi-head attention against its equation, with every mask and every score."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from regard.layers import (
    MultiHeadAttention,
)
from tests.layers.multi_head.longhand import B, D, H, M, N, double, longhand, negative_distance


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key_dim": 11, "value_dim": 13, "out_dim": 17},
        {"key_dim": 11},
        {"output_projection": False, "bias": False},
        {"qk_norm": nn.RMSNorm},
    ],
    ids=["plain", "adaptive widths", "key width", "no output projection", "qk norm"],
)
def test_the_output_and_the_map_are_those_of_the_equation(kv_heads, options):
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads, **options).double()
    for parameter in layer.parameters():  # zero biases and unit norms would hide mistakes
        nn.init.normal_(parameter)
    key_dim = options.get("key_dim", D)
    query = double(B, M, D)
    key = double(B, N, key_dim, seed=1)
    value = double(B, N, options.get("value_dim", key_dim), seed=2)
    mask = regard.lengths([N, 3, 0])
    expected, weights = longhand(
        layer, query, key, value, mask.dense(M, N, leading=2).expand(B, H, M, N)
    )
    output, map = layer(query, key, value, mask=mask, return_map=True)
    assert output.shape == (B, M, options.get("out_dim", D))
    assert map.shape == (B, H, M, N)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map.dense(), weights)
    torch.testing.assert_close(map[..., 3:4, :], weights[..., 3:4, :])


def test_self_attention_is_the_default_and_value_is_the_key():
    layer = MultiHeadAttention(D, H)
    x, memory = torch.randn(B, M, D), torch.randn(B, N, D)
    assert torch.equal(layer(x), layer(x, x, x))
    assert torch.equal(layer(x, memory), layer(x, memory, memory))


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_every_kind_of_mask_means_the_same(kv_heads):
    batch = H  # as many sequences as heads: a mask of sequences must not be taken for one of heads
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads).double()
    query, key = double(batch, M, D), double(batch, N, D, seed=1)
    generator = torch.Generator().manual_seed(2)

    def same(mask: regard.Mask | Tensor, visible: Tensor) -> None:
        expected, weights = longhand(layer, query, key, key, visible.expand(batch, H, M, N))
        output, map = layer(query, key, mask=mask, return_map=True)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(map.dense(), weights)

    rows = torch.rand(M, N, generator=generator) > 0.4
    sequences = torch.rand(batch, M, N, generator=generator) > 0.4
    heads = torch.rand(batch, H, M, N, generator=generator) > 0.4
    lengths = torch.tensor([7, 5, 0, 1, 2, 3])
    causal = regard.causal().dense(M, N)
    short = regard.lengths(lengths)
    short_dense = (torch.arange(N) < lengths[:, None])[:, None, None]
    same(rows, rows)
    same(sequences, sequences[:, None])
    same(heads, heads)
    same(heads[:, :1], heads[:, :1])
    same(regard.causal(), causal)
    same(short, short_dense)
    same(regard.causal() & sequences, causal & sequences[:, None])
    same(short | ~regard.visible(sequences), short_dense | ~sequences[:, None])
    same(regard.causal() & short & heads, causal & short_dense & heads)
    per_head = torch.randint(0, N + 1, (batch, H), generator=generator)
    same(regard.lengths(per_head), (torch.arange(N) < per_head[..., None])[..., None, :])


@pytest.mark.parametrize("kv_heads", [6, 3])
def test_a_bias_is_added_to_the_scores_and_learns(kv_heads):
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads).double()
    x = double(B, N, D)
    for shape in [(N, N), (B, N, N), (1, H, N, N), (B, H, N, N)]:
        bias = double(*shape, seed=3).requires_grad_()
        output, map = layer(x, bias=bias, return_map=True)
        wide = bias if bias.dim() != 3 else bias.unsqueeze(1)
        scores = layer(x, return_map=True).map.scores.dense() + wide
        torch.testing.assert_close(map.dense(), scores.softmax(-1))
        output.sum().backward()
        assert bias.grad.abs().max() > 0


def test_the_map_makes_the_output_and_asking_for_it_changes_nothing():
    layer = MultiHeadAttention(D, H, kv_heads=2)
    x = torch.randn(B, 40, D)
    output, map = layer(x, mask=regard.causal(), return_map=True)
    assert torch.equal(output, layer(x, mask=regard.causal()))
    value = layer.value_projection(x).unflatten(-1, (2, -1)).transpose(1, 2)
    heads = map.dense() @ value.repeat_interleave(3, dim=1)
    torch.testing.assert_close(output, layer.output_projection(heads.transpose(1, 2).flatten(-2)))
    (gradient,) = torch.autograd.grad(map[..., 3, :2].sum(), layer.key_projection.weight)
    assert gradient.abs().max() > 0


SCORES = {
    "dot": lambda: "dot",
    "cosine": lambda: "cosine",
    "general": lambda: regard.General(2, 2),
    "additive": lambda: regard.Additive(2, 2, 5),
    "callable": lambda: negative_distance,
}


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_shared_by_all_heads(name, kv_heads):
    score = SCORES[name]()
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads, score=score).double()
    x = double(B, 19, D)
    map = layer(x, return_map=True).map
    q = layer.query_projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
    k = layer.key_projection(x).unflatten(-1, (kv_heads, -1)).transpose(1, 2)
    k = k.repeat_interleave(H // kv_heads, dim=1)
    by_name = {"dot": regard.Dot(), "cosine": regard.Cosine().double()}
    function = by_name[name] if isinstance(score, str) else score
    torch.testing.assert_close(map.scores.dense(), function(q, k))


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_each_head_may_have_a_score_of_its_own(kv_heads):
    fused = ["dot", "scaled_dot", regard.General(2, 2), "cosine", regard.General(2, 2), "dot"]
    mixed = [*fused[:4], regard.Additive(2, 2, 3), negative_distance]
    x = double(B, 19, D)
    for scores in (fused, mixed):
        layer = MultiHeadAttention(D, H, kv_heads=kv_heads, score=scores).double()
        output, map = layer(x, mask=regard.causal(), return_map=True)
        q = layer.query_projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
        k, v = (
            projection(x).unflatten(-1, (kv_heads, -1)).transpose(1, 2)
            for projection in (layer.key_projection, layer.value_projection)
        )
        heads = []
        for h, score in enumerate(scores):
            kv = h * kv_heads // H
            heads.append(
                regard.attend(
                    q[:, h], k[:, kv], v[:, kv], score=score, mask=regard.causal(), return_map=True
                )
            )
        context = torch.cat([head.output for head in heads], dim=-1)
        torch.testing.assert_close(output, layer.output_projection(context))
        maps = torch.stack([head.map.dense() for head in heads], dim=1)
        torch.testing.assert_close(map.dense(), maps)
        modules = [score for score in scores if isinstance(score, nn.Module)]
        names = dict(layer.named_parameters())
        for score in modules:  # they are trained and saved with the layer
            for parameter in score.parameters():
                assert any(parameter is own for own in names.values())


def test_scores_of_heads_that_are_all_dot_products_are_fused():
    layer = MultiHeadAttention(D, H, score=["dot"] * 5 + [regard.General(2, 2)])
    q = torch.randn(B, H, 64, 2)
    assert regard.explain(q, q, q, score=layer.score).path == "fused"


@settings(max_examples=25)
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2), (6, 2)]),
    batch=st.integers(1, 3),
    queries=st.integers(1, 5),
    keys=st.integers(1, 7),
    seed=st.integers(0, 2**16),
)
def test_any_shape_and_mask_agrees_with_the_equation(heads, batch, queries, keys, seed):
    torch.manual_seed(seed)
    many, few = heads
    layer = MultiHeadAttention(many * 2, many, kv_heads=few).double()
    query, key = double(batch, queries, many * 2), double(batch, keys, many * 2, seed=1)
    visible = torch.rand(batch, many, queries, keys) > 0.5
    expected, weights = longhand(layer, query, key, key, visible)
    output, map = layer(query, key, mask=visible, return_map=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map.dense(), weights)
