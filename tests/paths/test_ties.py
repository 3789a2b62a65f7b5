"""Gradients do not depend on the subgradient that torch takes where a clamp or a maximum ties."""

import pytest
import torch
from torch import Tensor

from regard.paths import linear as linear_path
from regard.paths.gated_delta import DeltaInputs, chunked, recurrent
from regard.paths.linear import linear
from tests.paths.linear.textbook import assert_same_with_gradients

N, D = 23, 3


class Clamp(torch.autograd.Function):
    """A clamp whose gradient at the bounds is chosen: torch 2.14 takes 0, those before 1."""

    slope = 1.0

    @staticmethod
    def forward(ctx, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.bounds = low, high
        return torch.where(x < low, low, torch.where(x > high, high, x))

    @staticmethod
    def backward(ctx, grad: Tensor):
        (x,), (low, high) = ctx.saved_tensors, ctx.bounds
        inside = ((x > low) & (x < high)).to(grad.dtype)
        return grad * torch.where((x == low) | (x == high), Clamp.slope, inside), None, None


@pytest.fixture(params=[0.0, 0.5, 1.0])
def convention(request, monkeypatch) -> None:
    def clamp(x: Tensor, min: float = -torch.inf, max: float = torch.inf) -> Tensor:
        return Clamp.apply(x, min, max)

    larger = torch.maximum

    def maximum(x: Tensor, y: Tensor) -> Tensor:
        if not x.requires_grad and not y.requires_grad:
            return larger(x, y)
        share = torch.where(x == y, request.param, (x > y).to(x.dtype))
        return larger(x, y).detach() + share * (x - x.detach()) + (1 - share) * (y - y.detach())

    monkeypatch.setattr(Clamp, "slope", request.param)
    for owner in (torch, torch.Tensor):
        monkeypatch.setattr(owner, "clamp", clamp)
        monkeypatch.setattr(owner, "maximum", maximum)


def sample(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64)


@pytest.mark.usefixtures("convention")
@pytest.mark.parametrize("width", [1, D])
def test_a_chunk_without_decay_has_the_gradients_of_the_recurrence(width):
    torch.manual_seed(0)
    beta, decay = torch.rand(N, 1, dtype=torch.float64), torch.zeros(N, width, dtype=torch.float64)
    leaves = [sample(N, D), torch.nn.functional.normalize(sample(N, D)), sample(N, 5), decay, beta]
    leaves = [x.requires_grad_() for x in leaves]
    slope = sample(N, 5)
    found, wanted = (
        torch.autograd.grad(form(DeltaInputs(*leaves))[0], leaves, slope)
        for form in (chunked, recurrent)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("convention")
@pytest.mark.parametrize("rise", [-1.0, 300.0])
@pytest.mark.parametrize("causal", [False, True])
def test_equal_keys_have_the_gradients_of_the_textbook(monkeypatch, causal, rise):
    monkeypatch.setitem(linear_path.MAX_RISE, torch.float64, rise)
    torch.manual_seed(0)
    key = torch.full((N, D), 7.0, dtype=torch.float64)
    assert_same_with_gradients(sample(N, D), key, sample(N, 5), causal=causal)
    assert linear(sample(N, D), key, sample(N, 5), causal=causal).isfinite().all()
