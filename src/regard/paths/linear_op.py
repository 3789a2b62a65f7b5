"""The sweep of efficient attention as a torch operator with its gradient, the sweep in reverse.

As an operator it is opaque to ``torch.compile`` (the pieces depend on the numbers) and saves for
backward only its inputs and one state. Backward keeps one state per block of pairs and recomputes
the rest, so memory is linear in the length. The second derivative runs the sweep under autograd.

With g the gradient of the output, dS and dz the gradients of the state after a piece with one
maximum, and D = g Sᵀ + tril(g Vᵀ) e the gradient of p:

    dρq = D / Z        dZ = −p · D / Z        dV = tril(p eᵀ)ᵀ g + e dS
    dk_j = e_j · (Σ_{i≥j} p_i (g_i · v_j) + dS v_j + Σ_{i≥j} dZ_i + dz)

A piece in which every query has its own maximum has E_ij in place of e_j for each query i.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.paths import linear_sweep
from regard.paths.kernels.custom_operator import differentiable_copies, register
from regard.paths.linear_sweep import (
    LinearState,
    Load,
    OwnMaximum,
    Plan,
    SharedMaximum,
    add_prefix,
    context,
    exp,
    full_precision,
    in_blocks,
    loader,
    nonzero,
    rescale,
    spans,
    sum_dtype,
    take,
    triangle,
    walk,
)

FEW = 256  # positions; shorter sequences fill a piece with more heads


def linear_start(
    leading: tuple[int, ...],
    features: int,
    value_dim: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> LinearState:
    """The state before the first key.

    >>> linear_start((2, 3), 5, 7).sums.shape
    torch.Size([2, 3, 5, 7])

    Args:
        leading: leading sizes of the tensors to come, e.g. (batch, heads)
        features: F, the size of queries and keys
        value_dim: Dv, the size of values
        dtype: of the tensors to come; the state of half precision is kept in float32
    """
    kept = sum_dtype(dtype)
    return LinearState(
        torch.zeros(*leading, features, value_dim, dtype=kept, device=device),
        torch.zeros(*leading, 1, features, dtype=kept, device=device),
        torch.full((*leading, 1, features), -math.inf, dtype=kept, device=device),
    )


def sweep(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, offset: int) -> Tensor:
    """Efficient attention in which query i sees keys up to i + offset, (..., M, Dv).

    The leading sizes, at least one of them, are equal; seen is (..., N) or None.
    """
    # torch.func and forward-mode differentiation would silently ignore the operator
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return sweep_under_autograd(query, key, value, seen, offset)
    return _linear(query, key, value, seen, offset)[0]


def sweep_under_autograd(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, offset: int
) -> Tensor:
    """The same, of operations that torch can differentiate any number of times, in any mode."""
    plan = Plan.of(query, key, offset)
    start = _start(key, value)
    with torch.no_grad():
        load = loader(key.detach(), value.detach(), seen)
        pieces = [piece for piece, *_ in walk(load, add_prefix(load, start, plan), plan.pieces())]

    # One split instead of many slices: the backward of a slice fills the whole tensor with zeros.
    sizes = [piece.size for piece in pieces]
    along_keys = [plan.prefix, *sizes, key.shape[-2] - plan.prefix - plan.pairs]
    hides = [None] * len(along_keys) if seen is None else seen.split(along_keys, -1)
    parts = map(loader, key.split(along_keys, -2), value.split(along_keys, -2), hides)
    loads = dict(zip(itertools.accumulate(along_keys, initial=0), parts, strict=False))
    _, *queries, suffix = query.split([plan.blind, *sizes, plan.suffix], -2)

    def load_part(at: int, size: int) -> tuple[Tensor, Tensor]:
        return loads[at](0, size)

    state = add_prefix(load_part, start, plan._replace(piece=max(plan.prefix, 1)))
    outputs = [start.sums.new_zeros(len(start.sums), plan.blind, value.shape[-1])]
    for q, (piece, part, after) in zip(queries, walk(load_part, state, pieces), strict=True):
        outputs.append(part.output(take(q, 0, piece.size)))
        state = after
    outputs.append(take(suffix, 0, plan.suffix).softmax(-1) @ context(state))
    return torch.cat(outputs, -2).to(value.dtype).view(*query.shape[:-1], value.shape[-1])


def _forward(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, offset: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output, and the parts of the final state."""
    output, *end = _fake(query, key, value, seen, offset)
    for group in _groups(query, key):
        q, k, v = query[group], key[group], value[group]
        plan, load = Plan.of(q, k, offset), loader(k, v, None if seen is None else seen[group])
        out = output[group].flatten(0, -3)
        out[:, : plan.blind] = 0
        state = add_prefix(load, _start(k, v), plan)
        for (at, _, size), part, after in walk(load, state, plan.pieces()):
            out[:, at : at + size] = part.output(take(q, at, size))
            state = after
        final = context(state)
        for at, size in spans(plan.blind + plan.pairs, q.shape[-2], plan.piece):
            out[:, at : at + size] = torch.bmm(take(q, at, size).softmax(-1), final)
        for kept, done in zip(end, state, strict=True):
            kept[group] = done.view(kept[group].shape)
    return output, end[0], end[1], end[2]


def _fake(query, key, value, seen, offset):
    return value.new_empty(*query.shape[:-1], value.shape[-1]), *(
        part.view(*key.shape[:-2], *part.shape[1:]) for part in _start(key, value)
    )


def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    offset: int,
    sums: Tensor,
    normalizer: Tensor,
    maximum: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    into = Gradients(*(part.new_empty(part.shape) for part in (query, key, value)))
    for group in _groups(query, key):
        q, k, v = query[group], key[group], value[group]
        load = loader(k, v, None if seen is None else seen[group])
        end = LinearState(*(part[group].flatten(0, -3) for part in (sums, normalizer, maximum)))
        out = Gradients(*(part[group].flatten(0, -3) for part in into))
        with full_precision(grad):
            differentiate(grad[group], q, load, _start(k, v), end, Plan.of(q, k, offset), out)
    return into.query, into.key, into.value


def _second(
    cotangents: tuple[Tensor, ...],
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    offset: int,
) -> tuple[Tensor, ...]:
    with torch.enable_grad(), full_precision(grad):
        inputs = g, q, k, v = differentiable_copies((grad, query, key, value))
        output = sweep_under_autograd(q, k, v, seen, offset)
        first = torch.autograd.grad(output, (q, k, v), g, create_graph=True)
    return torch.autograd.grad(first, inputs, cotangents, create_graph=torch.is_grad_enabled())


_linear = register(
    "linear",
    "(Tensor query, Tensor key, Tensor value, Tensor? seen, SymInt offset)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _forward,
    _backward,
    _second,
    fake=_fake,
    gradients=3,
    saved=[1, 2, 3],
)


def _groups(query: Tensor, key: Tensor) -> list[slice]:
    """Slices of the first dimension, of as many heads as fill the pieces of a sweep."""
    length = min(max(query.shape[-2], key.shape[-2], 1), FEW)
    size = max(linear_sweep.ROWS // length // max(math.prod(key.shape[1:-2]), 1), 1)
    return [slice(at, at + size) for at in range(0, len(key), size)]


def _start(key: Tensor, value: Tensor) -> LinearState:
    heads = math.prod(key.shape[:-2])
    return linear_start((heads,), key.shape[-1], value.shape[-1], key.dtype, key.device)


class Gradients(NamedTuple):
    """Where the gradients of query, key and value are written to, (n, L, ·) each."""

    query: Tensor
    key: Tensor
    value: Tensor


class StateGradient(NamedTuple):
    """The gradient of a state; its maximum is a constant."""

    sums: Tensor  # (n, F, Dv)
    normalizer: Tensor  # (n, 1, F)


def differentiate(
    grad: Tensor,
    query: Tensor,
    load: Load,
    start: LinearState,
    end: LinearState,
    plan: Plan,
    into: Gradients,
) -> None:
    """Write the gradients of one sweep that led from the start to the end state."""
    into.query[:, : plan.blind] = 0
    into.key[:, plan.prefix + plan.pairs :] = 0
    into.value[:, plan.prefix + plan.pairs :] = 0
    d_state = _suffix_gradient(grad, query, end, plan, into)
    if plan.pairs:
        end = add_prefix(load, start, plan)
        # Keys and values are loaded again when their turn comes.
        trail = [(piece, part.without_keys()) for piece, part, _ in walk(load, end, plan.pieces())]
        while trail:
            (at, other, size), part = trail.pop()
            part = part.with_keys(*load(other, size))
            pair = Gradients(
                *(x[:, o : o + size] for x, o in zip(into, (at, other, other), strict=True))
            )
            g, q = take(grad, at, size), take(query, at, size)
            if isinstance(part, SharedMaximum):
                d_state = _shared_gradient(g, q, part, d_state, pair)
            else:
                d_state = _own_gradient(g, q, part, d_state, pair)
    for at, size in spans(0, plan.prefix, plan.piece):
        key, value = load(at, size)
        powers = exp(key - end.maximum)
        d_powers = torch.bmm(value, d_state.sums.mT).add_(d_state.normalizer)
        torch.mul(d_powers, powers, out=into.key[:, at : at + size])
        into.value[:, at : at + size] = torch.bmm(powers, d_state.sums)


def _suffix_gradient(
    grad: Tensor, query: Tensor, end: LinearState, plan: Plan, into: Gradients
) -> StateGradient:
    """Of the queries that read the final state: output = ρq(Q) · sums / normalizer."""
    final = context(end)
    d_final = torch.zeros_like(final)
    for at, size in spans(plan.blind + plan.pairs, query.shape[-2], plan.piece):
        weight, g = take(query, at, size).softmax(-1), take(grad, at, size)
        d_final.baddbmm_(weight.mT, g)
        _softmax_gradient(torch.bmm(g, final.mT), weight, into.query[:, at : at + size])
    normalizer = nonzero(end.normalizer)
    d_normalizer = (d_final * final).sum(-1).unsqueeze(-2).neg() / normalizer
    return StateGradient(d_final / normalizer.mT, d_normalizer)


def _shared_gradient(
    grad: Tensor, query: Tensor, part: SharedMaximum, d_state: StateGradient, into: Gradients
) -> StateGradient:
    """The gradient of the state before a piece, from that of the state after it."""
    (blocks, size, features), heads = part.powers.shape, len(part.shrink)
    count = blocks // heads
    g, weight = in_blocks(grad), in_blocks(query.softmax(-1))
    share, total = part.shares(weight)

    d_inside = torch.bmm(g, part.value.mT).tril_()  # (nb, c, c)
    d_share = torch.bmm(g, part.sums.mT).baddbmm_(d_inside, part.powers)
    d_weight = d_share.div_(total)
    d_total = (share * d_weight).neg_()

    # The gradient of the sums of each block, from all later blocks and the state after the piece.
    strict = triangle(g, count, -1).mT.expand(heads, count, count)
    read = torch.bmm(share.mT, g).view(heads, count, part.sums[0].numel())  # (n, b, F Dv)
    d_sums = torch.baddbmm(d_state.sums.flatten(1)[:, None], strict, read)
    mass = d_total.sum(1).view(heads, count, features)  # (n, b, F)
    d_normalizer = torch.baddbmm(d_state.normalizer, strict, mass)
    before = StateGradient(
        (d_sums[:, 0] + read[:, 0]).view(d_state.sums.shape) * part.shrink.mT,
        (d_normalizer[:, :1] + mass[:, :1]) * part.shrink,
    )

    d_sums, d_normalizer = d_sums.view(part.sums.shape), d_normalizer.view(blocks, 1, features)
    above = triangle(g, size).mT.expand(blocks, size, size)
    d_powers = torch.baddbmm(d_normalizer, above, d_total)
    d_powers.baddbmm_(part.value, d_sums.mT).baddbmm_(d_inside.mT, share)
    d_value = torch.bmm(part.powers, d_sums).baddbmm_(part.inside(share).mT, g)

    _softmax_gradient(d_weight.view(query.shape), weight.view(query.shape), into.query)
    torch.mul(d_powers.view(query.shape), part.powers.view(query.shape), out=into.key)
    into.value.copy_(d_value.view(into.value.shape))
    return before


def _own_gradient(
    g: Tensor, query: Tensor, part: OwnMaximum, d_state: StateGradient, into: Gradients
) -> StateGradient:
    """The gradient of the state before a piece, from that of the state after it."""
    weight, before = query.softmax(-1), part.before
    each, shrink = part.powers()  # (n, c, c, F), (n, c, F)
    share, total = part.shares(weight, each, shrink)
    inside = (each @ share.unsqueeze(-1)).squeeze(-1)  # (n, c, c)

    d_inside = torch.bmm(g, part.value.mT)  # where j > i, E is zero
    d_share = shrink * torch.bmm(g, before.sums.mT)
    d_share += (d_inside.unsqueeze(-2) @ each).squeeze(-2)
    d_weight = d_share / total
    d_total = (share * d_weight).neg_()

    powers, shrunk, _ = rescale(before, part.key)
    d_powers = torch.bmm(part.value, d_state.sums.mT).add_(d_state.normalizer)
    d_each = share.unsqueeze(-2) * d_inside.unsqueeze(-1) + d_total.unsqueeze(-2)
    torch.add((each * d_each).sum(-3), d_powers.mul_(powers), out=into.key)
    into.value.copy_(torch.bmm(powers, d_state.sums).baddbmm_(inside.mT, g))
    _softmax_gradient(d_weight, weight, into.query)
    return StateGradient(
        torch.baddbmm(d_state.sums * shrunk.mT, (share * shrink).mT, g),
        d_state.normalizer * shrunk + (shrink * d_total).sum(-2, keepdim=True),
    )


def _softmax_gradient(d_weight: Tensor, weight: Tensor, into: Tensor) -> None:
    """Write the gradient of the scores of a softmax over the last dimension."""
    mean = (d_weight * weight).sum(-1, keepdim=True)
    torch.mul(d_weight.sub_(mean), weight, out=into)
