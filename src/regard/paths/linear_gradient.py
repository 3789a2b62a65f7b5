"""The gradient of efficient attention: the sweep in reverse.

It keeps one state per block of pairs and recomputes the rest, so memory is linear in the length.
With g the gradient of the output, dS and dz the gradients of the state after a gentle piece, and
D = g Sᵀ + tril(g Vᵀ) e the gradient of p:

    dρq = D / Z        dZ = −p · D / Z        dV = tril(p eᵀ)ᵀ g + e dS
    dk_j = e_j · (Σ_{i≥j} p_i (g_i · v_j) + dS v_j + Σ_{i≥j} dZ_i + dz)

A steep piece has E_ij in place of e_j wherever a query i is involved.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.paths.linear_piece import Gentle, Steep, in_blocks, triangle
from regard.paths.linear_state import LinearState, climb, context, positive, power
from regard.paths.linear_sweep import Load, Plan, absorb, cut, meet, stretches


class Gradients(NamedTuple):
    """Where the gradients of query, key and value go, (n, L, ·) each."""

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
    into.key[:, plan.lead + plan.pairs :] = 0
    into.value[:, plan.lead + plan.pairs :] = 0
    d_state = _rest(grad, query, end, plan, into)
    if plan.pairs:
        end = absorb(load, start, plan)
        # Powers and values are loaded again when their turn comes.
        trail = [(piece, part.forget()) for piece, part, _ in meet(load, end, plan.pieces())]
        while trail:
            (at, other, size), part = trail.pop()
            part = part.recall(*load(other, size))
            pair = Gradients(
                *(x[:, o : o + size] for x, o in zip(into, (at, other, other), strict=True))
            )
            g, q = cut(grad, at, size), cut(query, at, size)
            if isinstance(part, Gentle):
                d_state = _gentle(g, q, part, d_state, pair)
            else:
                d_state = _steep(g, q, part, d_state, pair)
    for at, size in stretches(0, plan.lead, plan.most):
        key, value = load(at, size)
        powers = power(key - end.maximum)
        d_powers = torch.bmm(value, d_state.sums.mT).add_(d_state.normalizer)
        torch.mul(d_powers, powers, out=into.key[:, at : at + size])
        into.value[:, at : at + size] = torch.bmm(powers, d_state.sums)


def _rest(
    grad: Tensor, query: Tensor, end: LinearState, plan: Plan, into: Gradients
) -> StateGradient:
    """Of the queries that ask the finished state: output = ρq(Q) · sums / normalizer."""
    seen = context(end)
    d_seen = torch.zeros_like(seen)
    for at, size in stretches(plan.blind + plan.pairs, query.shape[-2], plan.most):
        weight, g = cut(query, at, size).softmax(-1), cut(grad, at, size)
        d_seen.baddbmm_(weight.mT, g)
        _through_softmax(torch.bmm(g, seen.mT), weight, into.query[:, at : at + size])
    normalizer = positive(end.normalizer)
    d_normalizer = (d_seen * seen).sum(-1).unsqueeze(-2).neg() / normalizer
    return StateGradient(d_seen / normalizer.mT, d_normalizer)


def _gentle(
    grad: Tensor, query: Tensor, part: Gentle, d_state: StateGradient, into: Gradients
) -> StateGradient:
    """The gradient of the state before a gentle piece, from that of the state after it."""
    (blocks, size, features), heads = part.powers.shape, len(part.shrink)
    count = blocks // heads
    g, weight = in_blocks(grad), in_blocks(query.softmax(-1))
    share, total = part.shares(weight)

    d_inside = torch.bmm(g, part.value.mT).tril_()  # (nb, c, c)
    d_share = torch.bmm(g, part.sums.mT).baddbmm_(d_inside, part.powers)
    d_weight = d_share.div_(total)
    d_total = (share * d_weight).neg_()

    # What the blocks after each block, and the state after the piece, ask of its sums.
    strict = triangle(g, count, -1).mT.expand(heads, count, count)
    asked = torch.bmm(share.mT, g).view(heads, count, part.sums[0].numel())  # (n, b, F Dv)
    d_sums = torch.baddbmm(d_state.sums.flatten(1)[:, None], strict, asked)
    mass = d_total.sum(1).view(heads, count, features)  # (n, b, F)
    d_normalizer = torch.baddbmm(d_state.normalizer, strict, mass)
    before = StateGradient(
        (d_sums[:, 0] + asked[:, 0]).view(d_state.sums.shape) * part.shrink.mT,
        (d_normalizer[:, :1] + mass[:, :1]) * part.shrink,
    )

    d_sums, d_normalizer = d_sums.view(part.sums.shape), d_normalizer.view(blocks, 1, features)
    above = triangle(g, size).mT.expand(blocks, size, size)
    d_powers = torch.baddbmm(d_normalizer, above, d_total)
    d_powers.baddbmm_(part.value, d_sums.mT).baddbmm_(d_inside.mT, share)
    d_value = torch.bmm(part.powers, d_sums).baddbmm_(part.inside(share).mT, g)

    _through_softmax(d_weight.view(query.shape), weight.view(query.shape), into.query)
    torch.mul(d_powers.view(query.shape), part.powers.view(query.shape), out=into.key)
    into.value.copy_(d_value.view(into.value.shape))
    return before


def _steep(
    g: Tensor, query: Tensor, part: Steep, d_state: StateGradient, into: Gradients
) -> StateGradient:
    """The gradient of the state before a steep piece, from that of the state after it."""
    weight, before = query.softmax(-1), part.before
    each, shrink = part.powers()  # (n, c, c, F), (n, c, F)
    share, total = part.shares(weight, each, shrink)
    inside = (each @ share.unsqueeze(-1)).squeeze(-1)  # (n, c, c)

    d_inside = torch.bmm(g, part.value.mT)  # where j > i, E is zero
    d_share = shrink * torch.bmm(g, before.sums.mT)
    d_share += (d_inside.unsqueeze(-2) @ each).squeeze(-2)
    d_weight = d_share / total
    d_total = (share * d_weight).neg_()

    powers, shrunk, _ = climb(before, part.key)
    d_powers = torch.bmm(part.value, d_state.sums.mT).add_(d_state.normalizer)
    d_each = share.unsqueeze(-2) * d_inside.unsqueeze(-1) + d_total.unsqueeze(-2)
    torch.add((each * d_each).sum(-3), d_powers.mul_(powers), out=into.key)
    into.value.copy_(torch.bmm(powers, d_state.sums).baddbmm_(inside.mT, g))
    _through_softmax(d_weight, weight, into.query)
    return StateGradient(
        torch.baddbmm(d_state.sums * shrunk.mT, (share * shrink).mT, g),
        d_state.normalizer * shrunk + (shrink * d_total).sum(-2, keepdim=True),
    )


def _through_softmax(d_weight: Tensor, weight: Tensor, into: Tensor) -> None:
    """Write the gradient of what a softmax over the last dimension was taken of."""
    mean = (d_weight * weight).sum(-1, keepdim=True)
    torch.mul(d_weight.sub_(mean), weight, out=into)
