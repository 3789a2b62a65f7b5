"""Hidden and later keys and values reach nothing in efficient attention."""

import math

import pytest
import torch

from regard.paths.linear import linear, linear_context, linear_rows
from tests.paths.linear.textbook import TOLERANCE, assert_close, random, textbook


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("later", [math.nan, math.inf, -1e4, 1e4])
def test_later_keys_and_values_never_reach_earlier_outputs(dtype, later):
    torch.manual_seed(0)
    query, key, value = (random(2, 41, 3, dtype=dtype) for _ in range(3))
    before = textbook(query, key, value, causal=True)
    for at in (1, 13, 40):
        changed_key, changed_value = key.clone(), value.clone()
        changed_key[:, at] = later
        assert_close(linear(query, changed_key, value, causal=True)[:, :at], before[:, :at])
        changed_value[:, at] = later
        assert_close(linear(query, key, changed_value, causal=True)[:, :at], before[:, :at])


def test_a_head_with_nan_leaves_the_others_as_they_are():
    torch.manual_seed(0)
    query, key, value = (random(3, 72, 2) for _ in range(3))
    expected = textbook(query, key, value, causal=True)
    value[1, 5:] = math.nan
    output = linear(query, key, value, causal=True)
    assert output[1, 5:].isnan().all()
    assert_close(output[1, :5], expected[1, :5])
    assert_close(output[::2], expected[::2])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_hidden_keys_and_values_reach_neither_output_nor_gradient(causal, bad):
    torch.manual_seed(0)
    query, key, value = random(2, 3, 17, 5), random(2, 3, 23, 5), random(2, 3, 23, 7)
    visible = torch.rand(2, 1, 23) < 0.6
    query.requires_grad_()
    clean = [key.requires_grad_(), value.requires_grad_()]
    hidden = ~visible.unsqueeze(-1)
    dirty = [x.detach().masked_fill(hidden, bad).requires_grad_() for x in clean]

    outputs = [linear(query, *pair, visible=visible, causal=causal) for pair in (clean, dirty)]
    assert torch.equal(*outputs)
    wanted = torch.autograd.grad(outputs[0].square().sum(), [query, *clean])
    grads = torch.autograd.grad(outputs[1].square().sum(), [query, *dirty])
    assert all(torch.equal(got, want) for got, want in zip(grads, wanted, strict=True))
    assert not any(grad.masked_select(hidden).any() for grad in grads[1:])

    maps = [
        linear_rows(query, k, slice(1, 9), visible=visible, causal=causal)
        for k, _ in (clean, dirty)
    ]
    assert torch.equal(*maps)
    (grad,) = torch.autograd.grad(maps[1].square().sum(), dirty[:1])
    assert grad.isfinite().all()
    assert not grad.masked_select(hidden).any()
    assert torch.equal(*(linear_context(*pair, visible=visible) for pair in (clean, dirty)))


def test_keys_beyond_the_last_query_reach_nothing():
    query, key, value = random(5, 3), random(11, 3), random(11, 2)
    dirty = [x.clone().index_fill(0, torch.arange(8, 11), math.nan) for x in (key, value)]
    dirty = [x.requires_grad_() for x in dirty]
    output = linear(query, *dirty, causal=True, offset=3)
    assert_close(output, textbook(query, key[:8], value[:8], causal=True))
    output.sum().backward()
    assert all(x.grad[:8].isfinite().all() and not x.grad[8:].any() for x in dirty)
    rows = linear_rows(query, dirty[0], slice(None), causal=True, offset=3)
    assert rows.isfinite().all()
    assert not rows[:, 8:].any()


@pytest.mark.parametrize("causal", [False, True])
def test_a_sequence_without_visible_keys_gives_zeros_and_zero_gradients(causal):
    tensors = [random(2, 3, 19, 5).requires_grad_() for _ in range(3)]
    visible = torch.tensor([True, False])[:, None, None].expand(2, 1, 19)
    output = linear(*tensors, visible=visible, causal=causal)
    assert_close(output[:1], textbook(*(x[:1] for x in tensors), causal=causal))
    assert not output[1].any()
    output.sum().backward()
    for tensor in tensors:
        assert tensor.grad.isfinite().all()
        assert not tensor.grad[1].any()
    assert not linear_context(*tensors[1:], visible=visible)[1].any()


def test_queries_before_the_first_key_give_zeros():
    query, key, value = random(7, 3).requires_grad_(), random(5, 3), random(5, 2)
    output = linear(query, key, value, causal=True)
    assert not output[:2].any()
    assert_close(output[2:], textbook(query[2:], key, value, causal=True))
    output.sum().backward()
    assert not query.grad[:2].any()
