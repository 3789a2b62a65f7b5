"""Efficient attention in one sweep over pieces of the sequence, with a running state.

First the keys that every query sees are taken in, then queries and keys go in pairs, each query
with the last key it may see, then the queries that see everything ask the finished state.
Bidirectional attention has no pairs, causal attention of one sequence nothing else.

In a piece of pairs, with e = e^{k − maximum} and S, z the state before it,

    Z_i = z + Σ_{j≤i} e_j        p = ρq(Q) / Z        output = p S + tril(p eᵀ) V

One maximum for a whole piece is exact while it climbs little inside the piece. Where it climbs
more, the piece is halved; a piece of one position is always exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from regard.paths.linear_state import (
    CLIMB,
    LinearState,
    accumulating,
    climb,
    positive,
)

ROWS = 4096  # positions x heads in a piece: its tensors stay in the cache
BLOCK = 64  # positions whose pairs are multiplied out; a piece holds several blocks


class Piece(NamedTuple):
    """Queries and keys that go in pairs: where they start and how many they are."""

    query: int
    key: int
    size: int


class Plan(NamedTuple):
    """Who meets whom when query i sees keys up to i + offset."""

    blind: int  # queries at the start that see nothing
    lead: int  # keys at the start that every other query sees
    pairs: int  # queries that each see one key more than the query before
    rest: int  # queries at the end that see all keys
    most: int  # positions in a piece

    @classmethod
    def of(cls, queries: int, keys: int, offset: int, heads: int) -> Plan:
        if not heads:  # an empty batch has nothing to sweep
            return cls(0, 0, 0, 0, BLOCK)
        blind = min(max(-offset, 0), queries)
        lead = min(max(offset, 0), keys)
        pairs = min(queries - blind, keys - lead)
        most = max(ROWS // heads // BLOCK, 1) * BLOCK
        return cls(blind, lead, pairs, queries - blind - pairs, most)

    def pieces(self) -> list[Piece]:
        whole = self.pairs // BLOCK * BLOCK
        spans = stretches(0, whole, self.most) + stretches(whole, self.pairs, self.most)
        return [Piece(self.blind + start, self.lead + start, size) for start, size in spans]


# Keys (n, size, F) and values (n, size, Dv) from a start on; hidden keys −inf, hidden values 0.
Load = Callable[[int, int], tuple[Tensor, Tensor]]


class Keys(NamedTuple):
    """The keys of a piece in blocks of c positions; the (n, b) blocks lie in one dimension."""

    powers: Tensor  # e, (nb, c, F)
    value: Tensor  # (nb, c, Dv)


class Past(NamedTuple):
    """A piece of pairs, and what came before each of its blocks."""

    piece: Piece
    sums: Tensor  # S, (nb, F, Dv)
    normalizer: Tensor  # z, (nb, 1, F)
    shrink: Tensor  # e^{maximum before the piece − maximum}, (n, 1, F)
    after: LinearState


def absorb(load: Load, state: LinearState, plan: Plan) -> LinearState:
    """Take in the keys that every query sees."""
    for start, size in stretches(0, plan.lead, plan.most):
        key, value = load(start, size)
        powers, _, base = climb(state, key)
        state = LinearState(
            torch.baddbmm(base.sums, powers.mT, value),
            base.normalizer + powers.sum(-2, keepdim=True),
            base.maximum,
        )
    return state


def meet(load: Load, state: LinearState, pieces: list[Piece]) -> Iterator[tuple[Keys, Past]]:
    """Walk the pairs piece by piece, halving those in which a maximum climbs too far."""
    todo = pieces[::-1]
    while todo:
        piece = todo.pop()
        key, value = load(piece.key, piece.size)
        powers, shrink, base = climb(state, key)
        if piece.size > 1 and not _gentle(state, base, key, value):
            todo += _halves(piece)
            continue
        keys = Keys(in_blocks(powers), in_blocks(value))
        past = _past(keys, piece, shrink, base)
        yield keys, past
        state = past.after


def answer(query: Tensor, keys: Keys, past: Past) -> Tensor:
    """The outputs (n, size, Dv) of a piece, from its queries (n, size, F)."""
    share, _ = shares(in_blocks(query.softmax(-1)), keys, past)
    output = torch.baddbmm(torch.bmm(share, past.sums), inside(share, keys), keys.value)
    return output.view(*query.shape[:2], keys.value.shape[-1])


def shares(weight: Tensor, keys: Keys, past: Past) -> tuple[Tensor, Tensor]:
    """p = ρq(Q) / Z and Z of a piece, both (nb, c, F)."""
    blocks, size, _ = keys.powers.shape
    below = triangle(keys.powers, size).expand(blocks, size, size)
    total = torch.baddbmm(positive(past.normalizer), below, keys.powers)
    return weight / total, total


def inside(share: Tensor, keys: Keys) -> Tensor:
    """The attention map inside each block, (nb, c, c)."""
    return torch.bmm(share, keys.powers.mT).tril()


def in_blocks(tensor: Tensor) -> Tensor:
    """(n, size, D) as (nb, c, D); what is not whole blocks is one block."""
    heads, length, last = tensor.shape
    size = BLOCK if length % BLOCK == 0 else length
    return tensor.reshape(heads * (length // size), size, last)


def triangle(like: Tensor, size: int, diagonal: int = 0) -> Tensor:
    """Ones on and below a diagonal, (size, size)."""
    return torch.ones(size, size, dtype=like.dtype, device=like.device).tril_(diagonal)


def stretches(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """[start, stop) as (start, size) of at most ``most`` each."""
    return [(at, min(most, stop - at)) for at in range(start, stop, most)]


def cut(tensor: Tensor, start: int, size: int) -> Tensor:
    """Positions [start, start + size) of (..., L, D), as (n, size, D) in the summing precision."""
    part = tensor.narrow(-2, start, size).to(accumulating(tensor.dtype))
    return part.reshape(math.prod(part.shape[:-2]), *part.shape[-2:])


def cut_keys(key: Tensor, value: Tensor, seen: Tensor | None) -> Load:
    """Loads stretches of keys (..., N, F) and values (..., N, Dv), seen (..., N) where given."""

    def load(start: int, size: int) -> tuple[Tensor, Tensor]:
        k, v = cut(key, start, size), cut(value, start, size)
        if seen is None:
            return k, v
        hidden = ~seen.narrow(-1, start, size).reshape(len(k), size, 1)
        return k.masked_fill(hidden, -math.inf), v.masked_fill(hidden, 0)

    return load


def _past(keys: Keys, piece: Piece, shrink: Tensor, base: LinearState) -> Past:
    heads, features, value_dim = base.sums.shape
    blocks = len(keys.powers)
    count = blocks // heads
    strict = triangle(keys.powers, count, -1).expand(heads, count, count)

    added = torch.bmm(keys.powers.mT, keys.value).view(heads, count, features * value_dim)
    sums = torch.baddbmm(base.sums.flatten(1)[:, None], strict, added)  # (n, b, F Dv)
    mass = keys.powers.sum(1).view(heads, count, features)
    normalizer = torch.baddbmm(base.normalizer, strict, mass)  # (n, b, F)
    after = LinearState(
        (sums[:, -1] + added[:, -1]).view(base.sums.shape),
        normalizer[:, -1:] + mass[:, -1:],
        base.maximum,
    )
    before = sums.view(blocks, features, value_dim), normalizer.view(blocks, 1, features)
    return Past(piece, *before, shrink, after)


def _gentle(before: LinearState, base: LinearState, key: Tensor, value: Tensor) -> bool:
    """Whether one maximum may serve a piece of pairs.

    Not where it climbs too far above what the first query sees, and not where a number is not
    finite: alone it harms its own position and those after, together all of the piece.
    """
    climbed = base.maximum - torch.maximum(before.maximum, key[:, :1])
    climbed = climbed.masked_fill(base.maximum == torch.finfo(key.dtype).min, 0)  # no key at all
    steepest = climbed.amax() + 0 * value.sum()
    if torch._C._are_functorch_transforms_active():
        steepest = _over_everything(steepest.detach())
    return steepest.item() <= CLIMB[key.dtype]


@torch.library.custom_op("regard::linear_steepest", mutates_args=())
def _over_everything(steepest: Tensor) -> Tensor:
    """The largest entry, also over the dimensions that vmap hides: one plan serves them all."""
    return steepest.amax()


@_over_everything.register_fake
def _(steepest):
    return steepest.new_empty(())


@_over_everything.register_vmap
def _(info, in_dims, steepest):
    return _over_everything(steepest), None


def _halves(piece: Piece) -> list[Piece]:
    """Both halves, the earlier one last; blocks stay whole while there are two."""
    left = piece.size // 2
    if left >= BLOCK:
        left = left // BLOCK * BLOCK
    right = Piece(piece.query + left, piece.key + left, piece.size - left)
    return [right, piece._replace(size=left)]
