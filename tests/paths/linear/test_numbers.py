"""Efficient attention with large and small keys, in half precision, of empty tensors."""

import pytest
import torch

from regard.paths.linear import linear, linear_context, linear_rows
from tests.paths.linear.textbook import TOLERANCE, assert_same_with_gradients, random

KEYS = {
    "rising": lambda n: torch.arange(n)[:, None] * torch.tensor([1e3, 30.0, -1e3]),
    "one peak": lambda n: torch.eye(n)[:, :1] * 2e4 - 1e4,
    "late peak": lambda n: torch.eye(n).flip(0)[:, :3] * 2e4 - 1e4,
    "steps": lambda n: (torch.arange(n)[:, None] // 5) * torch.tensor([25.0, 500.0, -90.0]),
    "all equal": lambda n: torch.full((n, 3), 1e4),
    "denormal": lambda n: torch.full((n, 3), 1e-40),
    "scattered": lambda n: torch.randn(n, 3) * 1e4,
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_any_size_neither_overflow_nor_vanish(name, causal, dtype):
    torch.manual_seed(0)
    key = KEYS[name](53).to(dtype).expand(53, 3).contiguous()
    query, value = random(53, 3, dtype=dtype), random(53, 5, dtype=dtype)
    assert_same_with_gradients(query, key, value, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype, causal):
    torch.manual_seed(0)
    tensors = [random(2, 37, 5, dtype=dtype).requires_grad_() for _ in range(3)]
    promoted = [x.detach().float().requires_grad_() for x in tensors]
    output, expected = linear(*tensors, causal=causal), linear(*promoted, causal=causal)
    assert output.dtype == dtype
    assert torch.equal(output, expected.to(dtype))
    grad = torch.randn(2, 37, 5).to(dtype)
    grads = torch.autograd.grad(output, tensors, grad)
    for got, want in zip(grads, torch.autograd.grad(expected, promoted, grad.float()), strict=True):
        assert torch.equal(got, want.to(dtype))
    context = linear_context(*tensors[1:])
    assert torch.equal(context, linear_context(*promoted[1:]).to(dtype))


@pytest.mark.parametrize("causal", [False, True])
def test_mixed_precision_does_not_round_the_sums(causal):
    tensors = [random(2, 37, 5, dtype=torch.float32).requires_grad_() for _ in range(3)]
    expected = linear(*tensors, causal=causal)
    wanted = torch.autograd.grad(expected.sum(), tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = linear(*tensors, causal=causal)
        rows = linear_rows(*tensors[:2], slice(3, 5), causal=causal)
    grads = torch.autograd.grad(output.sum(), tensors)
    assert torch.equal(output, expected)
    assert all(torch.equal(got, want) for got, want in zip(grads, wanted, strict=True))
    assert torch.equal(rows, linear_rows(*tensors[:2], slice(3, 5), causal=causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("leading", "value_dim"), [((0,), 3), ((2, 0), 3), ((2,), 0)])
def test_empty_batches_and_values_stay_empty(leading, value_dim, causal):
    query, key, value = (
        random(*leading, 9, 2),
        random(*leading, 9, 2),
        random(*leading, 9, value_dim),
    )
    query.requires_grad_()
    output = linear(query, key, value, causal=causal)
    assert output.shape == (*leading, 9, value_dim)
    output.sum().backward()
    assert not query.grad.any()


def test_large_finite_values_leave_steep_keys_exact():
    """Values whose sum overflows are finite: the pieces after them still rise too far to share."""
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 200, 3), torch.zeros(1, 200, 3), torch.randn(1, 200, 8)
    key[0, 3], value[0, 3] = 40.0, 1e38
    key[0, 150:] = 100 * torch.arange(50.0).unsqueeze(-1)
    found = linear(query, key, value, causal=True)
    expected = linear(query.double(), key.double(), value.double(), causal=True)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
