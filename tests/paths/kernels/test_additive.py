"""Additive attention against the textbook in float64: values, first and second derivatives."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from regard.paths.kernels import additive_attention, additive_compiled, additive_scores
from tests.paths.kernels.checks import (
    assert_hidden_reaches_nothing,
    assert_same,
    intervals,
    visible,
)

B, M, N, H, D = 3, 7, 11, 5, 2


def textbook_scores(query, key, weight, low, high):
    scores = torch.tanh(query[:, :, None] + key[:, None]) @ weight
    return torch.where(visible(low, high, key.shape[1]), scores, 0)


def textbook_attention(query, key, weight, value, low, high):
    seen = visible(low, high, key.shape[1])
    scores = textbook_scores(query, key, weight, low, high)
    return torch.softmax(scores.masked_fill(~seen, -1e30), -1) * seen @ value


def inputs(sizes=(B, M, N, H, D), *, dtype=torch.float64, spread=1.0, seed=0):
    batch, queries, keys, hidden, width = sizes
    draw = torch.Generator().manual_seed(seed)
    shapes = (batch, queries, hidden), (batch, keys, hidden), (hidden,), (batch, keys, width)
    factors = spread, spread, 1.0, 1.0
    return [
        torch.randn(shape, generator=draw, dtype=dtype).mul(factor).requires_grad_()
        for shape, factor in zip(shapes, factors, strict=True)
    ]


def everything(queries=M, keys=N):
    return torch.zeros(1, queries, dtype=torch.int64), torch.full((1, queries), keys)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [0.3, 1.0, 8.0, 60.0, 1000.0])
def test_scores_equal_the_equation(way, dtype, spread):
    tensors = inputs((B, M, N, 67, D), dtype=dtype, spread=spread)[:3]
    assert_same(additive_scores, textbook_scores, tensors, *everything())
    assert_same(additive_scores, textbook_scores, tensors, *intervals(M, N, batch=B))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [0.3, 1.0, 8.0, 60.0])
def test_attention_equals_the_equations(way, dtype, spread):
    tensors = inputs((B, M, N, 67, 37), dtype=dtype, spread=spread)
    assert_same(additive_attention, textbook_attention, tensors, *everything())
    assert_same(additive_attention, textbook_attention, tensors, *intervals(M, N, batch=B))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.tuples(
        st.integers(0, 3),
        st.integers(0, 13),
        st.integers(0, 40),
        st.integers(0, 70),
        st.integers(0, 40),
    ),
    seed=st.integers(0, 99),
)
def test_any_size_zero_included(way, sizes, seed):
    batch, queries, keys, _, _ = sizes
    tensors = inputs(sizes, seed=seed)
    low, high = intervals(queries, max(keys, 1), batch=batch, seed=seed)
    assert_same(additive_attention, textbook_attention, tensors, low, high)
    assert_same(additive_scores, textbook_scores, tensors[:3], low, high)


@pytest.mark.parametrize("queries", [1, 2])
def test_few_queries_and_many_keys(way, queries):
    tensors = inputs((2, queries, 3001, 17, 5), dtype=torch.float32)
    assert_same(additive_attention, textbook_attention, tensors, *everything(queries, 3001))
    low, high = intervals(queries, 3001, batch=2)
    assert_same(additive_attention, textbook_attention, tensors, low, high)


def test_backward_in_blocks_of_rows_is_backward_at_once(monkeypatch):
    """Weights too many to keep are computed again, a block of rows at a time."""
    pytest.importorskip("numba")
    tensors = [tensor.detach() for tensor in inputs((2, 23, 41, 16, 16))]
    low, high = intervals(23, 41, batch=2)
    grad = torch.randn(2, 23, 16, dtype=torch.float64)
    _, weights = additive_compiled.attention(*tensors, low, high, True)
    at_once = additive_compiled.attention_backward(grad, *tensors, low, high, True, weights)
    monkeypatch.setattr(additive_compiled, "BLOCK_CELLS", 2 * 41 * 8)
    nothing = weights[..., :0]
    in_blocks = additive_compiled.attention_backward(grad, *tensors, low, high, False, nothing)
    for one, other in zip(at_once, in_blocks, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_large_opposite_projections_do_not_lose_their_difference(way):
    query, key = torch.full((1, 5, 3), 50.0), torch.full((1, 2, 3), -49.5)
    scores = additive_scores(query, key, torch.ones(3))
    torch.testing.assert_close(scores, torch.full((1, 5, 2), 3 * torch.tanh(torch.tensor(0.5))))


@pytest.mark.parametrize("ends", ["all", "intervals"])
def test_first_and_second_derivatives(way, ends):
    query, key, weight, value = inputs((2, 5, 3, 2, 1))
    low, high = intervals(5, 3, batch=2) if ends == "intervals" else (None, None)
    assert gradcheck(additive_scores, (query, key, weight, low, high))
    assert gradgradcheck(additive_scores, (query, key, weight, low, high))
    assert gradcheck(additive_attention, (query, key, weight, value, low, high))
    assert gradgradcheck(additive_attention, (query, key, weight, value, low, high))


def test_third_derivatives_are_not_lost(way):
    tensors = inputs((1, 5, 3, 2, 2))

    def third(function):
        query = tensors[0]
        result = function(query, *tensors[1:]).sin().sum()
        for _ in range(3):
            (result,) = torch.autograd.grad(result.square().sum(), query, create_graph=True)
        return result

    wanted = third(lambda *t: textbook_attention(*t, *everything(5, 3)))
    torch.testing.assert_close(third(additive_attention), wanted)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_hidden_keys_and_values_reach_nothing(bad):
    """Of the compiled loops; for others `dispatch` puts zeros there."""
    pytest.importorskip("numba")
    low, high = torch.full((1, M), 2), torch.tensor([[5, 5, 4, 2, 5, 3, 5]])

    def attend(*tensors):
        return additive_attention(*tensors, low, high)

    assert_hidden_reaches_nothing(attend, inputs(), (1, 3), (bad, bad))


def test_nan_stays_with_the_queries_that_see_it():
    """In the compiled loops, which go by loop bounds; also where three neighbours share a tile."""
    pytest.importorskip("numba")
    query, key, weight, value = inputs()
    low, high = torch.zeros(1, M, dtype=torch.int64), torch.arange(1, M + 1)[None]
    key, value = key.detach().clone(), value.detach().clone()
    key[:, 4], value[:, 5] = torch.nan, torch.nan
    context = additive_attention(query, key, weight, value, low, high)
    (gradient,) = torch.autograd.grad(context.sum(), query)
    assert context[:, :4].isfinite().all()
    assert context[:, 4:].isnan().all()
    assert gradient[:, :4].isfinite().all()


def test_a_query_that_sees_nothing_gets_zeros(way):
    tensors = inputs()
    high = torch.tensor([[0, 3, 0, 1, 2, 0, 5]])
    context = additive_attention(*tensors, None, high)
    gradients = torch.autograd.grad(context.sum(), tensors)
    assert (context[:, [0, 2, 5]] == 0).all()
    assert (gradients[0][:, [0, 2, 5]] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_promoted_to_float32(way, dtype):
    halves = [tensor.to(dtype).detach() for tensor in inputs()]
    wanted = textbook_attention(*(tensor.double() for tensor in halves), *everything())
    found = additive_attention(*halves)
    assert found.dtype == dtype
    assert (found.double() - wanted).abs().max() <= torch.finfo(dtype).eps * wanted.abs().max()


def test_equal_keys_are_averaged(way):
    query, key, weight, value = inputs()
    key = key[:, :1].expand(-1, N, -1)
    wanted = value.mean(1, keepdim=True).expand(-1, M, -1)
    torch.testing.assert_close(additive_attention(query, key, weight, value), wanted)


def test_scores_of_ten_thousand_choose_one_key(way):
    query, key, weight, value = inputs(dtype=torch.float32)
    weight = weight * 1e4
    chosen = textbook_scores(query, key, weight, *everything()).argmax(-1)
    wanted = torch.take_along_dim(value, chosen[..., None], 1)
    torch.testing.assert_close(additive_attention(query, key, weight, value), wanted)


def test_errors_name_the_shapes():
    query, key, weight, value = inputs()
    with pytest.raises(
        ValueError, match=r"key must have shape \(3, any, 5\), but has \(3, 11, 4\)"
    ):
        additive_scores(query, key[..., :4], weight)
    with pytest.raises(ValueError, match=r"value must have shape \(3, 11, any\)"):
        additive_attention(query, key, weight, value[:, :3])
    with pytest.raises(ValueError, match=r"low must have shape \(3, 7\), but has \(2, 7\)"):
        additive_scores(query, key, weight, torch.zeros(2, M, dtype=torch.int64))
    with pytest.raises(TypeError, match="high must be an integer tensor"):
        additive_scores(query, key, weight, None, torch.ones(1, M))
    with pytest.raises(TypeError, match="floating-point"):
        additive_scores(query.long(), key, weight)
