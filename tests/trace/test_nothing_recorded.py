"""A capture without calls gives the reason; early-bound functions are recorded all the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as bound_early

import regard
from regard.layers import MultiHeadAttention
from regard.trace import edit

X = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(1))


class BoundEarly(nn.Module):
    def forward(self, x):
        return bound_early(x, x, x)


class ByHand(nn.Module):
    def forward(self, x):
        return (x @ x.mT / 2).log_softmax(-1).exp() @ x


class Outside(nn.Module):
    """A method other than forward, which no hook and no wrapper of forward sees."""

    def decode(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def test_a_function_bound_before_is_seen():
    function = bound_early

    class Closed(nn.Module):
        def forward(self, x):
            return function(x, x, x)

    for model in (BoundEarly(), nn.Sequential(Closed())):
        before = model(X)
        with regard.capture(model) as trace:
            during = model(X)
        (call,) = trace
        assert torch.equal(before, during)
        assert torch.allclose(call.map.dense() @ X, before, atol=1e-6)
        with edit(model, keys=[0]):
            edited = model(X)
        assert torch.allclose(edited, bound_early(X, X[:, :, 1:], X[:, :, 1:]), atol=1e-6)


def test_weights_that_no_softmax_gives_are_explained():
    model = nn.Sequential(ByHand())
    explained = pytest.warns(UserWarning, match="no softmax became the weights of values")
    with explained, regard.capture(model) as trace:
        model(X)
    assert "no softmax became the weights of values" in repr(trace)


def test_a_call_outside_of_forward_is_explained():
    model = Outside()
    explained = pytest.warns(UserWarning, match="1 attention calls came from outside")
    with explained, regard.capture(model):
        model.decode(X)
    with regard.capture() as trace:
        model.decode(X)
    assert trace.names == ["scaled_dot_product_attention"]


def test_a_compiled_model_is_explained():
    layer = MultiHeadAttention(6, heads=2).eval()
    x = torch.randn(2, 3, 6)
    model = torch.compile(layer, backend="eager")
    explained = pytest.warns(UserWarning, match="the model is compiled")
    with explained, regard.capture(model), torch.no_grad():
        model(x)
    with torch.compiler.set_stance("force_eager"), regard.capture(model) as trace, torch.no_grad():
        model(x)
    assert trace.names == ["MultiHeadAttention"]


def test_a_block_without_a_call_is_explained():
    explained = pytest.warns(UserWarning, match="was the model called in it")
    with explained, regard.capture(nn.Linear(2, 2)) as trace:
        pass
    assert repr(trace).startswith("Trace of no attention calls: no attention was computed")
