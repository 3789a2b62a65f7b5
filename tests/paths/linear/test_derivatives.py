"""Derivatives of efficient attention of both orders and modes, compiled too."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from regard.paths import linear as linear_path
from regard.paths.linear import linear, linear_rows
from tests.paths.linear.textbook import assert_close, random, textbook


@pytest.mark.parametrize("rise", [300.0, 0.5])
@pytest.mark.parametrize("causal", [False, True])
def test_first_and_second_derivatives_are_right(monkeypatch, causal, rise):
    monkeypatch.setitem(linear_path.MAX_RISE, torch.float64, rise)
    torch.manual_seed(0)
    query, key, value = random(2, 7, 2), random(2, 9, 2), random(2, 9, 2)
    visible = torch.rand(2, 9) < 0.8
    tensors = tuple(x.requires_grad_() for x in (query, key, value))

    def function(*tensors: Tensor) -> Tensor:
        return linear(*tensors, visible=visible, causal=causal)

    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


def test_second_derivatives_when_the_gradient_depends_on_the_inputs():
    torch.manual_seed(0)
    tensors = [random(1, 9, 2).requires_grad_() for _ in range(3)]

    def third_power(function) -> list[Tensor]:
        loss = function(*tensors, causal=True).pow(3).sum()
        first = torch.autograd.grad(loss, tensors, create_graph=True)
        second = torch.autograd.grad(
            sum(x.square().sum() for x in first), tensors, create_graph=True
        )
        return [*first, *second, *torch.autograd.grad(sum(x.sum() for x in second), tensors)]

    for got, want in zip(third_power(linear), third_power(textbook), strict=True):
        assert_close(got, want)


def test_gradients_flow_through_the_rows_of_the_map():
    query, key = random(2, 5, 2).requires_grad_(), random(2, 7, 2).requires_grad_()
    for causal in (False, True):
        assert torch.autograd.gradcheck(
            lambda q, k, causal=causal: linear_rows(q, k, slice(1, 4), causal=causal), (query, key)
        )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("causal", [False, True])
def test_torch_func_and_forward_mode_are_right(causal):
    torch.manual_seed(0)
    query, key, value = (random(2, 13, 3) for _ in range(3))
    key, direction = key * 200, random(2, 13, 3)

    def function(key: Tensor) -> Tensor:
        return linear(query, key, value, causal=causal)

    def exact(key: Tensor) -> Tensor:
        return textbook(query, key, value, causal=causal)

    leaf = key.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(exact(leaf).square().sum(), leaf)
    _, tangent = torch.autograd.functional.jvp(exact, key, direction)
    with forward_ad.dual_level():
        dual = function(forward_ad.make_dual(key, direction))
        assert_close(forward_ad.unpack_dual(dual).tangent, tangent, 1.0)
    assert_close(torch.func.jvp(function, (key,), (direction,))[1], tangent, 1.0)
    assert_close(torch.func.grad(lambda k: function(k).square().sum())(key), gradient, 1.0)
    assert_close(torch.func.jacfwd(function)(key), torch.func.jacrev(function)(key), 1.0)
    batched = torch.vmap(lambda q, k, v: linear(q, k, v, causal=causal))
    assert_close(batched(query, key, value), exact(key))
    each = torch.vmap(
        torch.func.grad(lambda k, q, v: linear(q, k, v, causal=causal).square().sum())
    )
    assert_close(each(key, query, value), gradient, 1.0)


@pytest.mark.parametrize(("causal", "dynamic"), [(False, False), (True, False), (True, True)])
def test_compiled_gives_the_same_answer(monkeypatch, causal, dynamic):
    monkeypatch.setattr(linear_path, "ROWS", 5)  # several pieces in the graph
    torch.manual_seed(0)
    tensors = [random(2, 3, 29, 5).requires_grad_() for _ in range(3)]
    visible = torch.rand(2, 1, 29) < 0.8

    def function(*tensors: Tensor) -> Tensor:
        return linear(*tensors, visible=visible, causal=causal).square()

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    output, expected = compiled(*tensors), function(*tensors)
    assert_close(output, expected)
    grads = torch.autograd.grad(output.sum(), tensors)
    for got, want in zip(grads, torch.autograd.grad(expected.sum(), tensors), strict=True):
        assert_close(got, want, 1.0)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_compiled_forward_mode_keeps_its_tangents():
    query, key, value = (random(2, 13, 3) for _ in range(3))
    compiled = torch.compile(linear, backend="aot_eager")
    compiled(query, key, value)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(key, torch.ones_like(key).cumsum(-2))
        outputs = compiled(query, dual, value), linear(query, dual, value)
        assert_close(*(forward_ad.unpack_dual(output).tangent for output in outputs))
    torch.compiler.reset()


@pytest.mark.parametrize("mode", [FakeTensorMode, lambda: torch.device("meta")])
@pytest.mark.parametrize("causal", [False, True])
def test_tensors_without_numbers_have_the_shapes_of_the_results(causal, mode):
    sizes = ((2, 1, 17, 5), (3, 23, 5), (3, 23, 7))
    with mode():
        tensors = [torch.randn(size, requires_grad=True) for size in sizes]
        output = linear(*tensors, causal=causal)
        assert output.shape == (2, 3, 17, 7)
        gradients = torch.autograd.grad(output.sum(), tensors)
        assert [x.shape for x in gradients] == [torch.Size(size) for size in sizes]
        assert linear_rows(*tensors[:2], slice(3, 8), causal=causal).shape == (2, 3, 5, 23)


@pytest.mark.parametrize("which", range(3))
def test_an_input_that_changes_before_backward_is_an_error(which):
    tensors = [random(2, 29, 5).requires_grad_() for _ in range(3)]
    inputs = [x.clone() for x in tensors]
    output = linear(*inputs, causal=True)
    with torch.no_grad():
        inputs[which].mul_(2)
    with pytest.raises(RuntimeError, match="modified"):
        output.sum().backward()
