"""Registers a kernel as a torch operator that compilers can trace, with two derivatives."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from regard.system.process import in_forked_child


def register(
    name: str,
    schema: str,
    forward: Callable,
    backward: Callable,
    formula: Callable,
    *,
    fake: Callable,
    gradients: int,
    saved: Sequence[int] = (),
) -> Callable:
    """The operator `regard::name`, whose backward pass is the operator `regard::name_backward`.

    Args:
        name: of the operator
        schema: of forward in torch's notation; the first output is differentiable, others are not
        forward: (*inputs) -> output or outputs
        backward: (grad, *inputs, *saved outputs) -> the gradients of the first inputs
        formula: (*inputs) -> the first output, in plain torch: its derivatives beyond the first
            are those of the operator
        fake: (*inputs) -> empty tensors with the shapes of the outputs
        gradients: how many inputs have one
        saved: the indices of the outputs that backward takes
    """
    inputs = schema[1 : schema.index(")")]
    count = inputs.count(",") + 1
    extra = "".join(f", Tensor saved{i}" for i in saved)
    backward_schema = f"(Tensor grad, {inputs}{extra}) -> ({', '.join(['Tensor'] * gradients)})"
    forward_op = custom_op(f"regard::{name}", _unforked(forward), mutates_args=(), schema=schema)
    backward_op = custom_op(
        f"regard::{name}_backward", _unforked(backward), mutates_args=(), schema=backward_schema
    )

    def save(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.set_materialize_grads(False)
        _save(ctx, (*inputs, *(output[i] for i in saved)))

    def differentiate(ctx: Any, grad: Tensor | None, *_: None) -> tuple:
        if grad is None:
            return (None,) * count
        found = getattr(torch.ops.regard, f"{name}_backward")(grad, *_saved(ctx))
        return *found, *[None] * (count - gradients)

    def save_backward(ctx: Any, inputs: tuple, output: Any) -> None:
        _save(ctx, inputs[: 1 + count])

    def differentiate_backward(ctx: Any, *cotangents: Tensor) -> tuple:
        found = second_gradients(formula, cotangents, _saved(ctx), gradients)
        return *found, *[None] * (count + len(saved) - gradients)

    forward_op.register_fake(fake)
    backward_op.register_fake(
        lambda grad, *inputs: tuple(tensor.new_empty(tensor.shape) for tensor in inputs[:gradients])
    )
    forward_op.register_autograd(differentiate, setup_context=save)
    backward_op.register_autograd(differentiate_backward, setup_context=save_backward)
    return getattr(torch.ops.regard, name)


def later(module: str, name: str) -> Callable:
    """A function of a module beside this one that imports numba: when it is first called."""

    def run(*inputs: Any) -> Any:
        return getattr(import_module(f".{module}", __package__), name)(*inputs)

    return run


def _unforked(function: Callable) -> Callable:
    def run(*inputs: Any) -> Any:
        if in_forked_child():  # only a graph that was compiled before the fork gets here
            raise RuntimeError(
                "compiled kernels do not run in a forked process; compile the model again in it"
            )
        return function(*inputs)

    return run


def _save(ctx: Any, values: tuple) -> None:
    """Keep tensors where autograd checks them for changes, and everything else beside them."""
    ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in values))
    ctx.others = [None if isinstance(x, Tensor) else x for x in values]


def _saved(ctx: Any) -> list:
    return [
        other if tensor is None else tensor
        for tensor, other in zip(ctx.saved_tensors, ctx.others, strict=True)
    ]


def differentiable_copies(tensors: Sequence[Tensor], again: bool = True) -> tuple[Tensor, ...]:
    """Tensors from which nothing was computed yet, to differentiate with respect to.

    Aliases, if the result is to be differentiated again: one input may depend on another.
    """
    return tuple(
        t.view_as(t) if again and t.requires_grad else t.detach().requires_grad_() for t in tensors
    )


def second_gradients(
    formula: Callable, cotangents: Sequence[Tensor], inputs: Sequence[Any], count: int
) -> tuple[Tensor, ...]:
    """The derivative of the gradients of a formula, by autograd.

    Args:
        formula: (*inputs) -> output
        cotangents: of the gradients of its first inputs
        inputs: the gradient of its output, and its inputs
        count: how many inputs have gradients

    Returns: the gradients of the output's gradient and of the first inputs
    """
    again = torch.is_grad_enabled()  # a third derivative may follow
    with torch.enable_grad():
        grad, *tensors = copies = differentiable_copies(inputs[: 1 + count], again)
        output = formula(*tensors, *inputs[1 + count :])
        first = torch.autograd.grad(
            output, tensors, grad, create_graph=True, materialize_grads=True
        )
        outer = [(f, c) for f, c in zip(first, cotangents, strict=True) if f.requires_grad]
        if not outer:
            return tuple(map(torch.zeros_like, copies))
        moved, above = zip(*outer, strict=True)
        return torch.autograd.grad(moved, copies, above, create_graph=again, materialize_grads=True)
