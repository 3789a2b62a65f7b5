"""The gradient of efficient attention: the sweep in reverse.

It keeps one state per block of pairs and recomputes the rest, so memory is linear in the length.
With g the gradient of the output, e, p, Z and S as in the sweep, dS and dz the gradients of the
state after a piece, and D = g Sᵀ + tril(g Vᵀ) e the gradient of p:

    dρq = D / Z        dZ = −p · D / Z        dV = tril(p eᵀ)ᵀ g + e dS
    dk_j = e_j · (Σ_{i≥j} p_i (g_i · v_j) + dS v_j + Σ_{i≥j} dZ_i + dz)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.paths.linear_state import LinearState, context, positive
from regard.paths.linear_sweep import (
    Keys,
    Load,
    Past,
    Plan,
    absorb,
    cut,
    in_blocks,
    inside,
    meet,
    shares,
    stretches,
    triangle,
)


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
        trail = [past for _, past in meet(load, end, plan.pieces())]
        while trail:
            past = trail.pop()
            key, value = load(past.piece.key, past.piece.size)
            powers = (key - past.after.maximum).exp_()
            keys = Keys(in_blocks(powers), in_blocks(value))
            d_state = _pairs(grad, query, keys, past, d_state, into)
    for at, size in stretches(0, plan.lead, plan.most):
        key, value = load(at, size)
        powers = (key - end.maximum).exp_()
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


def _pairs(
    grad: Tensor, query: Tensor, keys: Keys, past: Past, d_state: StateGradient, into: Gradients
) -> StateGradient:
    """Of a piece of pairs; the gradient of the state before it, from that of the state after."""
    (blocks, size, features), heads = keys.powers.shape, len(past.shrink)
    count = blocks // heads
    at, other, length = past.piece
    weight = in_blocks(cut(query, at, length).softmax(-1))
    g = in_blocks(cut(grad, at, length))
    share, total = shares(weight, keys, past)

    d_inside = torch.bmm(g, keys.value.mT).tril_()  # (nb, c, c)
    d_share = torch.bmm(g, past.sums.mT).baddbmm_(d_inside, keys.powers)
    d_weight = d_share.div_(total)
    d_total = (share * d_weight).neg_()

    # What the blocks after each block, and the state after the piece, ask of its sums.
    strict = triangle(g, count, -1).mT.expand(heads, count, count)
    asked = torch.bmm(share.mT, g).view(heads, count, past.sums[0].numel())  # (n, b, F Dv)
    d_sums = torch.baddbmm(d_state.sums.flatten(1)[:, None], strict, asked)
    mass = d_total.sum(1).view(heads, count, features)  # (n, b, F)
    d_normalizer = torch.baddbmm(d_state.normalizer, strict, mass)
    before = StateGradient(
        (d_sums[:, 0] + asked[:, 0]).view(d_state.sums.shape) * past.shrink.mT,
        (d_normalizer[:, :1] + mass[:, :1]) * past.shrink,
    )

    d_sums, d_normalizer = d_sums.view(past.sums.shape), d_normalizer.view(blocks, 1, features)
    above = triangle(g, size).mT.expand(blocks, size, size)
    d_powers = torch.baddbmm(d_normalizer, above, d_total)
    d_powers.baddbmm_(keys.value, d_sums.mT).baddbmm_(d_inside.mT, share)
    d_value = torch.bmm(keys.powers, d_sums).baddbmm_(inside(share, keys).mT, g)

    d_weight, weight, d_powers, powers = (
        part.view(heads, length, features) for part in (d_weight, weight, d_powers, keys.powers)
    )
    _through_softmax(d_weight, weight, into.query[:, at : at + length])
    torch.mul(d_powers, powers, out=into.key[:, other : other + length])
    into.value[:, other : other + length] = d_value.view(heads, length, d_value.shape[-1])
    return before


def _through_softmax(d_weight: Tensor, weight: Tensor, into: Tensor) -> None:
    """Write the gradient of what a softmax over the last dimension was taken of."""
    mean = (d_weight * weight).sum(-1, keepdim=True)
    torch.mul(d_weight.sub_(mean), weight, out=into)
