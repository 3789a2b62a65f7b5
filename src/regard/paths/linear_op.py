"""The sweep of efficient attention as torch operators: forward, backward, and backward again.

As operators they are opaque to ``torch.compile`` (the pieces depend on the numbers) and keep for
backward only their inputs and one state. The second derivative runs the sweep under autograd.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.paths.linear_gradient import Gradients, differentiate
from regard.paths.linear_state import LinearState, context, exactly, linear_start
from regard.paths.linear_sweep import (
    ROWS,
    Plan,
    absorb,
    cut,
    cut_keys,
    meet,
    stretches,
)

SHORT = 256  # sequences shorter than this fill a piece with more heads


def sweep(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, offset: int) -> Tensor:
    """Efficient attention in which query i sees keys up to i + offset, (..., M, Dv).

    The leading sizes, at least one of them, are equal; seen is (..., N) or None.
    """
    # torch.func and forward-mode differentiation, which would pass the operator by unseen
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return sweep_under_autograd(query, key, value, seen, offset)
    return torch.ops.regard.linear(query, key, value, seen, offset)[0]


def sweep_under_autograd(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, offset: int
) -> Tensor:
    """The same, of operations that torch can differentiate any number of times, in any mode."""
    plan = _plan(query, key, offset)
    start = _start(key, value)
    with torch.no_grad():
        load = cut_keys(key.detach(), value.detach(), seen)
        pieces = [piece for piece, *_ in meet(load, absorb(load, start, plan), plan.pieces())]

    # One split instead of many slices: the backward of a slice fills the whole tensor with zeros.
    sizes = [piece.size for piece in pieces]
    along_keys = [plan.lead, *sizes, key.shape[-2] - plan.lead - plan.pairs]
    hides = [None] * len(along_keys) if seen is None else seen.split(along_keys, -1)
    parts = map(cut_keys, key.split(along_keys, -2), value.split(along_keys, -2), hides)
    loads = dict(zip(itertools.accumulate(along_keys, initial=0), parts, strict=False))
    _, *queries, rest = query.split([plan.blind, *sizes, plan.rest], -2)

    def load_part(at: int, size: int) -> tuple[Tensor, Tensor]:
        return loads[at](0, size)

    state = absorb(load_part, start, plan._replace(most=max(plan.lead, 1)))
    outputs = [start.sums.new_zeros(len(start.sums), plan.blind, value.shape[-1])]
    for q, (piece, part, after) in zip(queries, meet(load_part, state, pieces), strict=True):
        outputs.append(part.answer(cut(q, 0, piece.size)))
        state = after
    outputs.append(cut(rest, 0, plan.rest).softmax(-1) @ context(state))
    return torch.cat(outputs, -2).to(value.dtype).view(*query.shape[:-1], value.shape[-1])


@torch.library.custom_op("regard::linear", mutates_args=())
def _forward(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, offset: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    output = value.new_empty(*query.shape[:-1], value.shape[-1])
    end = LinearState(*(part.view(*key.shape[:-2], *part.shape[1:]) for part in _start(key, value)))
    for group in _groups(query, key):
        q, k, v = query[group], key[group], value[group]
        plan, load = _plan(q, k, offset), cut_keys(k, v, None if seen is None else seen[group])
        out = output[group].flatten(0, -3)
        out[:, : plan.blind] = 0
        state = absorb(load, _start(k, v), plan)
        for (at, _, size), part, after in meet(load, state, plan.pieces()):
            out[:, at : at + size] = part.answer(cut(q, at, size))
            state = after
        seen_by_all = context(state)
        for at, size in stretches(plan.blind + plan.pairs, q.shape[-2], plan.most):
            out[:, at : at + size] = torch.bmm(cut(q, at, size).softmax(-1), seen_by_all)
        for kept, done in zip(end, state, strict=True):
            kept[group] = done.view(kept[group].shape)
    return output, *end


@torch.library.custom_op("regard::linear_backward", mutates_args=())
def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    sums: Tensor,
    normalizer: Tensor,
    maximum: Tensor,
    offset: int,
) -> tuple[Tensor, Tensor, Tensor]:
    into = Gradients(*(part.new_empty(part.shape) for part in (query, key, value)))
    for group in _groups(query, key):
        q, k, v = query[group], key[group], value[group]
        load = cut_keys(k, v, None if seen is None else seen[group])
        end = LinearState(*(part[group].flatten(0, -3) for part in (sums, normalizer, maximum)))
        out = Gradients(*(part[group].flatten(0, -3) for part in into))
        with exactly(grad):
            differentiate(grad[group], q, load, _start(k, v), end, _plan(q, k, offset), out)
    return into.query, into.key, into.value


@_forward.register_fake
def _(query, key, value, seen, offset):
    return value.new_empty(*query.shape[:-1], value.shape[-1]), *(
        part.view(*key.shape[:-2], *part.shape[1:]) for part in _start(key, value)
    )


@_backward.register_fake
def _(grad, query, key, value, seen, sums, normalizer, maximum, offset):
    return tuple(part.new_empty(part.shape) for part in (query, key, value))


def _keep(ctx, inputs, output) -> None:
    *tensors, ctx.offset = inputs
    ctx.save_for_backward(*tensors, *output[1:])


def _first(ctx, grad: Tensor, *_):
    grads = torch.ops.regard.linear_backward(grad, *ctx.saved_tensors, ctx.offset)
    return (*grads, None, None)


def _keep_again(ctx, inputs, output) -> None:
    *tensors, _, _, _, ctx.offset = inputs
    ctx.save_for_backward(*tensors)


def _second(ctx, *grads: Tensor):
    *saved, seen = ctx.saved_tensors
    with torch.enable_grad(), exactly(saved[0]):
        # Aliases, so that what the gradient of the output itself came from is left alone.
        inputs = [(x if x.requires_grad else x.detach().requires_grad_()).view_as(x) for x in saved]
        grad, query, key, value = inputs
        output = sweep_under_autograd(query, key, value, seen, ctx.offset)
        first = torch.autograd.grad(output, inputs[1:], grad, create_graph=True)
    second = torch.autograd.grad(first, inputs, grads, create_graph=torch.is_grad_enabled())
    return (*second, *[None] * 5)


_forward.register_autograd(_first, setup_context=_keep)
_backward.register_autograd(_second, setup_context=_keep_again)


def _groups(query: Tensor, key: Tensor) -> list[slice]:
    """Slices of the first dimension, of as many heads as fill the pieces of a sweep."""
    length = min(max(query.shape[-2], key.shape[-2], 1), SHORT)
    size = max(ROWS // length // max(math.prod(key.shape[1:-2]), 1), 1)
    return [slice(at, at + size) for at in range(0, len(key), size)]


def _plan(query: Tensor, key: Tensor, offset: int) -> Plan:
    return Plan.of(query.shape[-2], key.shape[-2], offset, math.prod(key.shape[:-2]))


def _start(key: Tensor, value: Tensor) -> LinearState:
    heads = math.prod(key.shape[:-2])
    return linear_start((heads,), key.shape[-1], value.shape[-1], key.dtype, key.device)
