"""Efficient attention as the textbook writes it, and inputs of every shape."""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.paths.linear import linear

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def textbook_map(query: Tensor, key: Tensor, sees: Tensor) -> Tensor:
    """w_ij = Σ_f e^{q_if} / Σ_g e^{q_ig} · e^{k_jf} / Σ_{l visible to i} e^{k_lf}, (..., M, N)."""
    query, key = query.double(), key.double()
    rho_q = query.exp() / query.exp().sum(-1, keepdim=True)
    if not key.shape[-2]:
        return (rho_q @ key.mT) * 1.0
    each = key.unsqueeze(-3).masked_fill(~sees.unsqueeze(-1), -math.inf)  # (..., M, N, F)
    largest = each.detach().amax(-2, keepdim=True)
    power = (each - largest.masked_fill(largest == -math.inf, 0)).exp()
    total = power.sum(-2, keepdim=True)
    rho_k = power / total.masked_fill(total == 0, 1)
    return (rho_q.unsqueeze(-2) * rho_k).sum(-1)


def who_sees_whom(
    queries: int, keys: int, visible: Tensor | None, causal: bool, offset: int | None
) -> Tensor:
    sees = torch.ones(queries, keys, dtype=torch.bool)
    for i in range(queries):
        for j in range(keys):
            if causal:
                sees[i, j] = j <= i + (keys - queries if offset is None else offset)
    return sees if visible is None else sees & visible.unsqueeze(-2)


def textbook(query: Tensor, key: Tensor, value: Tensor, visible=None, causal=False, offset=None):
    sees = who_sees_whom(query.shape[-2], key.shape[-2], visible, causal, offset)
    if visible is not None:
        key = key.masked_fill(~visible.unsqueeze(-1), 0)
        value = value.masked_fill(~visible.unsqueeze(-1), 0)
    return textbook_map(query, key, sees) @ value.double()


def assert_close(ours: Tensor, exact: Tensor, least: float = 0.0) -> None:
    """Within the dtype's tolerance of the largest entry, or of ``least`` where that is more."""
    assert ours.shape == exact.shape
    if ours.numel():
        scale = max(exact.abs().max().item(), least)
        assert (ours.double() - exact).abs().max().item() <= TOLERANCE[ours.dtype] * scale


def assert_same_with_gradients(query, key, value, **options) -> None:
    """Value and gradients; a key's gradient is a difference of terms as large as g · v."""
    ours = [x.detach().clone().requires_grad_() for x in (query, key, value)]
    exact = [x.detach().double().requires_grad_() for x in (query, key, value)]
    output, expected = linear(*ours, **options), textbook(*exact, **options)
    assert_close(output, expected, 1e-30)
    grad = torch.randn(expected.shape, dtype=torch.float64).to(output.dtype)
    grads = torch.autograd.grad(output, ours, grad)
    wanted = torch.autograd.grad(expected, exact, grad.double())
    for got, want in zip(grads, wanted, strict=True):
        assert_close(got, want, 1.0)


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


@st.composite
def cases(draw):
    torch.manual_seed(draw(st.integers(0, 999)))
    leading = draw(st.sampled_from([(), (1,), (3,), (2, 3), (3, 3), (2, 1, 3)]))
    queries, keys = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    features, value_dim = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 3, 7]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    scale = draw(st.sampled_from([1.0, 10.0, 300.0, 1e4]))

    def part(*size: int) -> Tensor:
        """Any of the leading sizes may be one, or missing: they broadcast."""
        cut = leading[draw(st.integers(0, len(leading))) :]
        cut = tuple(1 if draw(st.booleans()) else n for n in cut)
        return random(*cut, *size, dtype=dtype)

    query, key, value = part(queries, features), part(keys, features), part(keys, value_dim)
    causal = draw(st.booleans())
    options = {"causal": causal}
    if causal:
        options["offset"] = draw(st.one_of(st.none(), st.integers(-45, 45)))
    if draw(st.booleans()):
        options["visible"] = part(keys) < draw(st.sampled_from([-1.0, 0.0, 1.0]))
    return (query, scale * key, value), options
