"""The book's layers against its formulas, written out, forward and backward."""

import pytest
import torch
from torch import Tensor

from regard.layers.textbook import Attention, AttentionWeight, TimeAttention, WeightSum

N, T, STEPS, H = 2, 5, 3, 7


@pytest.fixture
def states() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    hs = torch.randn(N, T, H, dtype=torch.float64)
    return hs, torch.randn(N, STEPS, H, dtype=torch.float64)


def softmax_backward(a: Tensor, da: Tensor) -> Tensor:
    """The book's softmax layer: ds = a ⊙ (da − Σ a ⊙ da)."""
    return a * (da - (a * da).sum(-1, keepdim=True))


def test_attention_weight_is_the_softmax_of_the_unscaled_products(states):
    hs, h = states[0].requires_grad_(), states[1][:, 0].requires_grad_()
    a = AttentionWeight()(hs, h)
    s = torch.stack([torch.stack([sum(hs[n, t] * h[n]) for t in range(T)]) for n in range(N)])
    torch.testing.assert_close(a, s.exp() / s.exp().sum(1, keepdim=True))

    da = torch.randn_like(a)
    dhs, dh = torch.autograd.grad(a, (hs, h), da)
    ds = softmax_backward(a, da)
    torch.testing.assert_close(dhs, ds[:, :, None] * h[:, None])
    torch.testing.assert_close(dh, (ds[:, :, None] * hs).sum(1))


def test_weight_sum_is_the_sum_of_weighted_states(states):
    hs = states[0].requires_grad_()
    a = torch.rand(N, T, dtype=torch.float64, requires_grad=True)
    c = WeightSum()(hs, a)
    torch.testing.assert_close(c, sum(a[:, t, None] * hs[:, t] for t in range(T)))

    dc = torch.randn_like(c)
    dhs, da = torch.autograd.grad(c, (hs, a), dc)
    torch.testing.assert_close(dhs, a[:, :, None] * dc[:, None])
    torch.testing.assert_close(da, (dc[:, None] * hs).sum(2))


def test_attention_is_both_layers(states):
    hs, h = states[0].requires_grad_(), states[1][:, 0].requires_grad_()
    together, apart = Attention()(hs, h), WeightSum()(hs, AttentionWeight()(hs, h))
    torch.testing.assert_close(together, apart)
    dc = torch.randn_like(together)
    for one, other in zip(
        torch.autograd.grad(together, (hs, h), dc),
        torch.autograd.grad(apart, (hs, h), dc),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_time_attention_is_attention_at_every_step(states):
    hs, hs_dec = states
    stepwise = torch.stack([Attention()(hs, hs_dec[:, t]) for t in range(STEPS)], 1)
    torch.testing.assert_close(TimeAttention()(hs, hs_dec), stepwise)


@pytest.mark.parametrize("layer", [AttentionWeight(), Attention()])
@pytest.mark.parametrize(
    "shapes", [((N, T, H), (N, T, H)), ((N, T, H), (3, H)), ((T, H), (N, H)), ((N, T, H), (N, 2))]
)
def test_wrong_shapes_are_named(layer, shapes):
    hs, h = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match=r"expected hidden states \(N, T, H\) and h \(N, H\), got"):
        layer(hs, h)


def test_wrong_shapes_of_the_other_layers_are_named():
    with pytest.raises(ValueError, match=r"expected hs \(N, T, H\) and a \(N, T\), got"):
        WeightSum()(torch.zeros(N, T, H), torch.zeros(N, T + 1))
    with pytest.raises(ValueError, match=r"hs_dec \(N, T', H\), got"):
        TimeAttention()(torch.zeros(N, T, H), torch.zeros(N, H))
