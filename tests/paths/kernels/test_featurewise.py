"""Feature-wise attention against its equation in float64: values, first and second derivatives."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from regard.paths.kernels import feature_attention
from tests.paths.kernels.checks import (
    assert_hidden_reaches_nothing,
    assert_same,
    intervals,
    visible,
)

B, M, N, D = 2, 7, 11, 3


def textbook(query, key, value, scale, low, high):
    """Σ_j softmax_j(c·tanh((q_id + k_jd)/c)) v_jd, written out."""
    scores = scale * torch.tanh((query[:, :, None] + key[:, None]) / scale)
    if low is None and high is None:
        return (torch.softmax(scores, 2) * value[:, None]).sum(2)
    seen = visible(low, high, key.shape[1])[..., None]
    weights = torch.softmax(scores.masked_fill(~seen, -1e30), 2) * seen
    return (weights * value[:, None]).sum(2)


def inputs(sizes=(B, M, N, D), *, dtype=torch.float64, spread=1.0, seed=0):
    batch, queries, keys, width = sizes
    draw = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, length, width, generator=draw, dtype=dtype).mul(factor).requires_grad_()
        for length, factor in ((queries, spread), (keys, spread), (keys, 1.0))
    ]


def check(tensors, scale, low, high):
    assert_same(feature_attention, textbook, tensors, scale, low, high, scale=scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("spread", "scale"), [(1.0, 1.0), (8.0, 5.0), (100.0, 1.0), (20.0, 50.0)])
def test_context_and_gradients_equal_the_equation(way, dtype, spread, scale):
    tensors = inputs((B, M, 131, 19), dtype=dtype, spread=spread)
    check(tensors, scale, None, None)
    check(tensors, scale, *intervals(M, 131, batch=B))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.tuples(st.integers(0, 3), st.integers(0, 13), st.integers(1, 40), st.integers(0, 40)),
    seed=st.integers(0, 99),
)
def test_any_size_zero_included(way, sizes, seed):
    batch, queries, keys, _ = sizes
    check(inputs(sizes, seed=seed), 5.0, *intervals(queries, keys, batch=batch, seed=seed))


def test_no_keys_give_zeros(way):
    assert (feature_attention(*inputs((B, M, 0, D))) == 0).all()


def test_a_scale_beyond_the_exponent_of_float32_is_exact_too():
    """e^100 overflows: the formula takes over."""
    check(inputs(dtype=torch.float32, spread=100.0), 100.0, None, None)


@pytest.mark.parametrize("ends", ["all", "intervals"])
def test_first_and_second_derivatives(way, ends):
    low, high = intervals(5, N, batch=B) if ends == "intervals" else (None, None)

    def attend(query, key, value):
        return feature_attention(query, key, value, 2.0, low, high)

    tensors = inputs((B, 5, N, 2))
    assert gradcheck(attend, tensors)
    assert gradgradcheck(attend, tensors)


def test_third_derivatives_are_not_lost(way):
    tensors = inputs((1, 5, 3, 2))

    def third(function):
        result = function(*tensors, 2.0, None, None).sin().sum()
        for _ in range(3):
            (result,) = torch.autograd.grad(result.square().sum(), tensors[0], create_graph=True)
        return result

    torch.testing.assert_close(third(feature_attention), third(textbook))


def test_hidden_keys_and_values_reach_nothing():
    """Of the compiled loops; for others `dispatch` puts zeros there."""
    pytest.importorskip("numba")
    low, high = torch.full((1, M), 2), torch.tensor([[5, 5, 4, 2, 5, 3, 5]])

    def attend(*tensors):
        return feature_attention(*tensors, 1.0, low, high)

    assert_hidden_reaches_nothing(attend, inputs(), (1, 2), (torch.nan, torch.inf))


def test_a_query_that_sees_nothing_gets_zeros(way):
    tensors = inputs()
    context = feature_attention(*tensors, 1.0, None, torch.tensor([[0, 3, 0, 1, 2, 0, 5]]))
    gradients = torch.autograd.grad(context.sum(), tensors)
    assert (context[:, [0, 2, 5]] == 0).all()
    assert (gradients[0][:, [0, 2, 5]] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_nan_stays_in_its_feature(way):
    query, key, value = (tensor.detach() for tensor in inputs())
    key[:, 3, 1] = torch.nan
    nan = feature_attention(query, key, value).isnan()
    assert nan[..., 1].all()
    assert not nan[..., [0, 2]].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_promoted_to_float32(way, dtype):
    halves = [tensor.to(dtype).detach() for tensor in inputs()]
    wanted = textbook(*(tensor.double() for tensor in halves), 1.0, None, None)
    found = feature_attention(*halves)
    assert found.dtype == dtype
    assert (found.double() - wanted).abs().max() <= torch.finfo(dtype).eps * wanted.abs().max()


def test_errors_name_the_shapes():
    query, key, value = inputs()
    with pytest.raises(
        ValueError, match=r"value must have shape \(2, 11, 3\), but has \(2, 10, 3\)"
    ):
        feature_attention(query, key, value[:, 1:])
    with pytest.raises(ValueError, match="scale is the largest score"):
        feature_attention(query, key, value, 0.0)
