"""Gradients do not depend on the subgradient that torch takes where a clamp or a maximum ties."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import regard
from regard.core.map import AttentionMap
from regard.core.normalize import entmax15, sparsemax
from regard.layers import GraphAttention
from regard.layers.memory import sharpen
from regard.models.bahdanau import Maxout
from regard.models.pair import join
from regard.paths import linear as linear_path
from regard.paths.gated_delta import DeltaInputs, chunked, recurrent
from regard.paths.linear import linear
from tests.paths.linear.textbook import assert_same_with_gradients

N, D = 23, 3


class Chosen(torch.autograd.Function):
    """A value whose gradients, of one input for each factor, are chosen."""

    @staticmethod
    def forward(ctx, value: Tensor, factors: list[Tensor], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*factors)
        return value.clone()

    @staticmethod
    def backward(ctx, grad: Tensor):
        return None, None, *(grad * factor for factor in ctx.saved_tensors)


class Conventions:
    """Torch's functions, with another share of the gradient at a bound and at a tie.

    Where a clamp meets its bound torch 2.14 takes 0, versions before take 1. Activations are not
    among them: their gradient at 0 is part of what their names mean.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.plain = {name: getattr(Tensor, name) for name in ("clamp", "maximum", "abs", "amax")}

    def factor(self, tied: Tensor, otherwise: Tensor, x: Tensor, share: float) -> Tensor:
        return torch.where(tied, share, otherwise.to(torch.float64)).to(x.dtype)

    def clamp(self, x: Tensor, min: float = -torch.inf, max: float = torch.inf) -> Tensor:
        if not x.is_floating_point():
            ends = (None if abs(end) == torch.inf else end for end in (min, max))
            return self.plain["clamp"](x, *ends)
        value = self.plain["clamp"](x.detach(), min, max)
        tied, inside = (x == min) | (x == max), (x > min) & (x < max)
        return Chosen.apply(value, [self.factor(tied, inside, x, self.share)], x)

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        value = self.plain["maximum"](x.detach(), y.detach())
        if not x.is_floating_point() or x.shape != y.shape:
            return self.plain["maximum"](x, y)
        shares = (x, x > y, self.share), (y, y > x, 1 - self.share)
        return Chosen.apply(
            value, [self.factor(x == y, larger, t, share) for t, larger, share in shares], x, y
        )

    def abs(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return self.plain["abs"](x)
        sign = x.detach().sign()
        return Chosen.apply(x.detach() * sign, [self.factor(x == 0, sign, x, self.share)], x)

    def amax(self, x: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
        value = self.plain["amax"](x.detach(), dim, True)
        top = x == value
        several = top & (top.sum(dim, keepdim=True) > 1)
        value = Chosen.apply(value, [self.factor(several, top, x, self.share)], x)
        return value if keepdim else value.squeeze(dim)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in self.plain:
            function = getattr(self, name)
            for owner in (torch, Tensor):
                monkeypatch.setattr(owner, name, lambda *a, f=function, **k: f(*a, **k))


@pytest.fixture(params=[0.0, 0.5, 1.0])
def convention(request, monkeypatch) -> None:
    Conventions(request.param).patch(monkeypatch)


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


def one_edge(x: Tensor) -> Tensor:
    """Every node of a ring has a single edge, whose weight is 1 whatever its score is."""
    torch.manual_seed(0)
    edges = torch.stack((torch.arange(N), torch.arange(N).roll(1)))
    return GraphAttention(D, 5).double()(x, edges)


def maps(read: Callable[[AttentionMap], Tensor]) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        return read(regard.attend(x, x.roll(1, 0), x, normalize="sparsemax", return_map=True).map)

    return call


ONES, ZEROS = torch.ones(N, D, dtype=torch.float64), torch.zeros(N, D, dtype=torch.float64)
ONE_HOT = torch.eye(N, dtype=torch.float64)
TIES: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "one edge": (one_edge, sample(N, D)),
    "one slot": (lambda w: sharpen(w, torch.full((N, 1), 3.0, dtype=torch.float64)), ONE_HOT),
    "sparsemax": (sparsemax, torch.tensor([[1.0, 0.0, -3.0], [2.0, 2.0, 1.0]])),
    "entmax": (entmax15, torch.tensor([[2.0, 0.0, -6.0], [2.0, 2.0, 1.0]])),
    "entropy": (maps(lambda map: map.entropy()), ONE_HOT * 9),
    "pooled": (maps(lambda map: map.pooled(4)), ONES),
    "bias": (
        lambda bias: regard.attend(*[ONES.float()] * 3, bias=bias),
        torch.full((N, N), torch.finfo(torch.float32).max / 2, dtype=torch.float64),
    ),
    "maxout": (lambda x: Maxout(D, 5).double()(x), ZEROS),
    "equal words": (lambda x: join(x, ONES), ONES),
}


@pytest.mark.parametrize("name", TIES)
def test_every_convention_gives_one_gradient(name, monkeypatch):
    function, at = TIES[name]
    found = []
    for share in (0.0, 0.5, 1.0):
        with monkeypatch.context() as patch:
            Conventions(share).patch(patch)
            torch.manual_seed(0)
            x = at.clone().requires_grad_()
            output = function(x)
            upstream = torch.rand(output.shape, dtype=output.dtype)
            found.append(torch.autograd.grad(output, x, upstream)[0])
    assert found[0].isfinite().all()
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("convention")
def test_the_weight_of_a_single_edge_does_not_move_with_its_score():
    scores = sample(N, 2).requires_grad_()
    weights = regard.layers.edges.edge_softmax(scores, torch.arange(N), N)
    assert torch.autograd.grad(weights, scores, sample(N, 2))[0].abs().max() < 1e-12
