"""Efficient attention one position at a time: the same as the whole sequence at once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.paths.linear import LinearState, linear, linear_start, linear_step


def steps(query, key, value) -> torch.Tensor:
    state = linear_start(query.shape[:-2], query.shape[-1], value.shape[-1], query.dtype)
    outputs = []
    for t in range(query.shape[-2]):
        at = (..., slice(t, t + 1), slice(None))
        output, state = linear_step(query[at], key[at], value[at], state)
        outputs.append(output)
    return torch.cat(outputs, -2)


@given(
    st.sampled_from([(), (2,), (2, 3)]),
    st.integers(1, 20),
    st.sampled_from([1.0, 30.0, 1e4]),
    st.sampled_from([torch.float64, torch.float32]),
    st.integers(0, 99),
)
def test_steps_equal_the_whole_sequence_in_value_and_gradient(leading, length, scale, dtype, seed):
    torch.manual_seed(seed)
    sizes = (3, 3, 5)
    tensors = [torch.randn(*leading, length, size).to(dtype) for size in sizes]
    tensors[1] *= scale
    tensors = [x.requires_grad_() for x in tensors]
    grad = torch.randn(*leading, length, 5).to(dtype)
    whole, one_by_one = linear(*tensors, causal=True), steps(*tensors)
    close = {"rtol": 0, "atol": 1e-9 if dtype == torch.float64 else 1e-5}
    assert torch.allclose(one_by_one, whole, **close)
    got = torch.autograd.grad(one_by_one, tensors, grad)
    for ours, theirs in zip(got, torch.autograd.grad(whole, tensors, grad), strict=True):
        scale = max(theirs.abs().max().item(), 1.0)
        assert torch.allclose(ours / scale, theirs / scale, **close)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_state_in_float32(dtype):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 11, 3).to(dtype) for _ in range(3)]
    state = linear_start((2,), 3, 3, dtype)
    assert {part.dtype for part in state} == {torch.float32}
    output = steps(*tensors)
    assert output.dtype == dtype
    assert torch.allclose(
        output.float(), linear(*(x.float() for x in tensors), causal=True), atol=1e-2
    )


def test_mixed_precision_does_not_round_the_state():
    position = [torch.randn(2, 1, 3) for _ in range(3)]
    expected = linear_step(*position, linear_start((2,), 3, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = linear_step(*position, linear_start((2,), 3, 3))
    assert torch.equal(output, expected[0])
    assert all(torch.equal(*parts) for parts in zip(state, expected[1], strict=True))


def test_the_state_does_not_grow():
    state = linear_start((2,), 3, 5)
    sizes = [part.shape for part in state]
    for _ in range(3):
        _, state = linear_step(
            torch.randn(2, 1, 3), torch.randn(2, 1, 3), torch.randn(2, 1, 5), state
        )
    assert [part.shape for part in state] == sizes


def test_beams_are_reordered_on_the_first_dimension():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 7, 5), torch.randn(3, 2, 7, 5), torch.randn(3, 2, 7, 2)
    state = linear_start((3, 2), 5, 2)
    for t in range(6):
        at = (..., slice(t, t + 1), slice(None))
        _, state = linear_step(query[at], key[at], value[at], state)
    index = torch.tensor([2, 2, 0])
    moved = state.reorder(index)
    assert isinstance(moved, LinearState)
    last = (..., slice(6, 7), slice(None))
    output, _ = linear_step(query[last][index], key[last][index], value[last][index], moved)
    whole = linear(query[index], key[index], value[index], causal=True)
    assert torch.allclose(output, whole[last], atol=1e-6)


def test_more_than_one_position_is_an_error_that_names_the_way():
    state = linear_start((), 3, 5)
    with pytest.raises(ValueError, match=r"one position.*\(2, 3\).*causal=True"):
        linear_step(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 5), state)
