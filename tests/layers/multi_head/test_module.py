"""Multi-head attention as a module: dtypes, padding, copies, compiling, dropout, errors."""

import copy
import math

import pytest
import torch
from torch import nn

import regard
from regard.layers import (
    ALiBi,
    MultiHeadAttention,
    Rotary,
)
from tests.layers.multi_head.longhand import POSITIONS, B, D, H, M, N, double, steps


def test_sequences_of_a_batch_do_not_influence_each_other():
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, H, kv_heads=3, position=Rotary(2), dropout=0.5)
    x = torch.randn(B, 33, D)
    changed = x.clone()
    changed[1] = torch.randn(33, D) * 100
    for mask in (None, regard.causal(), regard.lengths([33, 20, 5]), regard.window(3, 3)):
        for mode in (True, False):
            layer.train(mode)
            outputs = []
            for inputs in (x, changed):
                torch.manual_seed(1)
                outputs.append(layer(inputs, mask=mask))
            first, second = outputs
            assert torch.equal(first[[0, 2]], second[[0, 2]])
            assert not torch.equal(first[1], second[1])


@pytest.mark.parametrize("padding", [math.nan, math.inf, 1e25])
def test_nan_in_padding_reaches_no_output_and_no_gradient(padding):
    layer = MultiHeadAttention(D, H, kv_heads=3)
    memory = torch.randn(B, N, D)
    memory[0, 5:] = padding
    memory[2] = padding
    mask = regard.lengths([5, N, 0])
    query = torch.randn(B, M, D)
    output = layer(query, memory, mask=mask)
    output.sum().backward()
    clean = layer(query, torch.where(memory.abs() < 100, memory, 7.0), mask=mask)
    torch.testing.assert_close(output, clean)
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    x = memory.clone()  # padded queries are hidden too
    output = layer(x, mask=regard.lengths([5, N, 0], [5, N, 0]))
    assert output.isfinite().all()
    layer.zero_grad()
    output.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    stepped, _ = layer.step(query[:, :1], layer.start(B, memory, mask))
    torch.testing.assert_close(stepped, clean[:, :1])


def test_a_sequence_of_length_zero_gives_the_bias_of_the_output():
    layer = MultiHeadAttention(D, H)
    nn.init.normal_(layer.output_projection.bias)
    output = layer(torch.randn(2, M, D), mask=regard.lengths([0, 3]))
    torch.testing.assert_close(output[0], layer.output_projection.bias.expand(M, D))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("position", POSITIONS)
def test_every_dtype_comes_out_as_it_went_in(dtype, position):
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, H, kv_heads=2, position=POSITIONS[position]())
    x = torch.randn(B, N, D)
    exact = layer.double()(x.double(), mask=regard.causal())
    layer = layer.to(dtype)
    output = layer(x.to(dtype), mask=regard.causal())
    assert output.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps * exact.abs().max().item()
    assert (output.double() - exact).abs().max() < max(tolerance, 1e-6)
    y, _ = layer.step(x[:, :1].to(dtype), layer.start(B))
    assert y.dtype == dtype


def test_copies_and_saved_weights_give_the_same_numbers():
    scores = ["dot", *[regard.General(2, 2) for _ in range(5)]]
    layer = MultiHeadAttention(D, H, kv_heads=3, score=scores, qk_norm=nn.RMSNorm)
    x = torch.randn(B, N, D)
    copied = copy.deepcopy(layer)
    assert torch.equal(copied(x), layer(x))
    other = MultiHeadAttention(
        D,
        H,
        kv_heads=3,
        score=["dot", *[regard.General(2, 2) for _ in range(5)]],
        qk_norm=nn.RMSNorm,
    )
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    nn.init.zeros_(layer.query_projection.weight)
    assert not torch.equal(copied(x), layer(x))


def test_dropout_falls_on_the_weights_in_train_mode_only():
    layer = MultiHeadAttention(D, H, dropout=0.5, output_projection=False).double()
    x = double(B, 31, D)
    q, k, v = (
        projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
        for projection in (layer.query_projection, layer.key_projection, layer.value_projection)
    )
    torch.manual_seed(0)
    dropped = regard.attend(q, k, v, dropout=0.5).transpose(1, 2).flatten(-2)
    torch.manual_seed(0)
    torch.testing.assert_close(layer(x), dropped)
    assert not torch.equal(layer(x), layer(x))
    torch.testing.assert_close(layer.eval()(x), regard.attend(q, k, v).transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("kv_heads", [8, 2])
def test_with_dropout_and_padding_no_flop_is_spent_on_the_reference_path(kv_heads):
    batch, heads, length, width = 4, 8, 128, 16
    q = torch.randn(batch, kv_heads, heads // kv_heads, length, width)
    k = torch.randn(batch, kv_heads, 1, length, width)
    mask = regard.lengths([128, 100, 50, 3])
    for dropout, own in ((0.1, mask), (0.0, mask), (0.1, mask & regard.causal())):
        assert regard.explain(q, k, k, mask=own, dropout=dropout).path != "reference"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MultiHeadAttention(10, 3), "multiple of heads.*try dim=9 or dim=12"),
        (lambda: MultiHeadAttention(12, 6, kv_heads=4), "multiple of kv_heads.*1, 2, 3, 6"),
        (lambda: MultiHeadAttention(12, 0), "heads must be 1 or more, got 0"),
        (lambda: MultiHeadAttention(12, 3, key_dim=-1), "key_dim must be 1 or more"),
        (lambda: MultiHeadAttention(12, 3, dropout=1.0), "dropout should be at least 0"),
        (lambda: MultiHeadAttention(12, 3, score="scaledd"), "did you mean 'scaled_dot'"),
        (lambda: MultiHeadAttention(12, 3, score=["dot", "dot"]), "2 scores for 3 heads"),
        (lambda: MultiHeadAttention(12, 3, score=["dot", "dot", "dto"]), "did you mean 'dot'"),
        (lambda: MultiHeadAttention(12, 3, position=ALiBi(4)), "should be ALiBi\\(3\\)"),
        (lambda: MultiHeadAttention(12, 3, position=Rotary(6)), "should be Rotary\\(4\\)"),
        (
            lambda: MultiHeadAttention(12, 3, out_dim=5, output_projection=False),
            "got out_dim=5; leave one",
        ),
    ],
)
def test_a_bad_configuration_raises_a_helpful_error(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_position_without_hooks_is_refused():
    with pytest.raises(TypeError, match=r"derive it from regard\.layers\.Position"):
        MultiHeadAttention(12, 3, position=object())


def test_bad_inputs_raises_a_helpful_error():
    layer = MultiHeadAttention(D, H, key_dim=11)
    x = torch.randn(B, N, D)
    with pytest.raises(ValueError, match=r"query should be \(batch, length, 12\), got \(7, 12\)"):
        layer(x[0])
    with pytest.raises(ValueError, match=r"key should be \(batch, length, 11\)"):
        layer(x)
    with pytest.raises(TypeError, match="bool tensor"):
        MultiHeadAttention(D, H)(x, mask=torch.zeros(N, N))
    layer = MultiHeadAttention(D, H)
    with pytest.raises(ValueError, match="memory_mask needs a memory"):
        layer.start(B, memory_mask=regard.lengths([1, 2, 3]))
    with pytest.raises(ValueError, match=r"multiple of 3, .* got 4"):
        layer.start(4, x)
    with pytest.raises(ValueError, match="the same for all queries"):
        layer.start(B, x, regard.causal())
    with pytest.raises(ValueError, match="does not fit a memory of 3 sentences"):
        layer.start(B, x, regard.lengths([1, 2]))
    with pytest.raises(ValueError, match=r"x should be \(2, 1, 12\)"):
        layer.step(x[:, :1], layer.start(2))


@pytest.mark.parametrize(("heads", "inner"), [(3, 21), (5, 5), (1, 32)])
def test_the_inner_width_is_free(heads, inner):
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, heads, inner_dim=inner, key_dim=7, value_dim=11).double()
    query, key, value = (double(B, n, d) for n, d in ((M, D), (N, 7), (N, 11)))
    assert layer.query_projection.weight.shape == (inner, D)
    assert layer.output_projection.weight.shape == (D, inner)

    def split(x):
        return x.unflatten(-1, (heads, inner // heads)).transpose(1, 2)

    q, k = split(layer.query_projection(query)), split(layer.key_projection(key))
    v = split(layer.value_projection(value))
    weights = (q @ k.mT / math.sqrt(inner // heads)).softmax(-1)
    expected = layer.output_projection((weights @ v).transpose(1, 2).flatten(-2))
    output, map = layer(query, key, value, return_map=True)
    assert torch.allclose(output, expected, rtol=0, atol=1e-9)
    assert torch.allclose(map.dense(), weights, rtol=0, atol=1e-9)


def test_steps_work_with_any_inner_width():
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, 3, inner_dim=15, kv_heads=1, score="bilinear").double().eval()
    x = double(B, M, D)
    outputs, _ = steps(layer, x, layer.start(B))
    whole = layer(x, mask=regard.causal())
    assert torch.allclose(torch.cat(outputs, 1), whole, rtol=0, atol=1e-9)
    assert "inner_dim=15" in repr(layer)
    joined = MultiHeadAttention(D, 3, inner_dim=15, output_projection=False)(x.float())
    assert joined.shape == (B, M, 15)
    with pytest.raises(ValueError, match=r"inner_dim must be a multiple of heads.*inner_dim=12"):
        MultiHeadAttention(D, 3, inner_dim=13)
