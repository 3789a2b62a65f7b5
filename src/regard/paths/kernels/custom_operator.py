"""Registers a kernel as a torch operator that compilers can trace, with two derivatives."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op


def register(
    name: str,
    schema: str,
    forward: Callable,
    backward: Callable,
    second: Callable,
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
        second: (cotangents of these gradients, grad, *inputs) -> the gradients of grad and of the
            first inputs, differentiable again
        fake: (*inputs) -> empty tensors with the shapes of the outputs
        gradients: how many inputs have one
        saved: the indices of the outputs that backward takes
    """
    inputs = schema[1 : schema.index(")")]
    count = inputs.count(",") + 1
    extra = "".join(f", Tensor saved{i}" for i in saved)
    backward_schema = f"(Tensor grad, {inputs}{extra}) -> ({', '.join(['Tensor'] * gradients)})"
    forward_op = custom_op(f"regard::{name}", forward, mutates_args=(), schema=schema)
    backward_op = custom_op(
        f"regard::{name}_backward", backward, mutates_args=(), schema=backward_schema
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
        found = second(cotangents, *_saved(ctx))
        return *found, *[None] * (count + len(saved) - gradients)

    forward_op.register_fake(fake)
    backward_op.register_fake(
        lambda grad, *inputs: tuple(tensor.new_empty(tensor.shape) for tensor in inputs[:gradients])
    )
    forward_op.register_autograd(differentiate, setup_context=save)
    backward_op.register_autograd(differentiate_backward, setup_context=save_backward)
    return getattr(torch.ops.regard, name)


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


def sum_of_gradients(
    blocks: Callable[[tuple[Tensor, ...]], Any], tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The gradients of tensors, summed over blocks that are differentiated one at a time.

    Args:
        blocks: from copies of the tensors, yields the outputs of each block and their cotangents
    """
    again = torch.is_grad_enabled()  # a third derivative may follow
    with torch.enable_grad():
        inputs = differentiable_copies(tensors, again)
        totals = tuple(torch.zeros_like(tensor) for tensor in inputs)
        for outputs, cotangents in blocks(inputs):
            found = torch.autograd.grad(
                outputs,
                inputs,
                cotangents,
                create_graph=again,
                retain_graph=True,
                materialize_grads=True,
            )
            totals = tuple(total + part for total, part in zip(totals, found, strict=True))
    return totals
