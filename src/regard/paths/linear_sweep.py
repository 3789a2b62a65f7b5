"""Efficient attention in one sweep over pieces of the sequence, with a running state.

First the keys that every query sees are taken in, then queries and keys go in pairs, each query
with the last key it may see, then the queries that see everything ask the finished state.
Bidirectional attention has no pairs, causal attention of one sequence nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from regard.paths import linear_piece
from regard.paths.linear_piece import Gentle, Steep
from regard.paths.linear_state import CLIMB, LinearState, accumulating, climb, peak

ROWS = 4096  # positions x heads in a piece: its tensors stay in the cache
STEEP = 16  # positions of a piece in which every query has a maximum of its own


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
        block = linear_piece.BLOCK
        if not heads:  # an empty batch has nothing to sweep
            return cls(0, 0, 0, 0, block)
        blind = min(max(-offset, 0), queries)
        lead = min(max(offset, 0), keys)
        pairs = min(queries - blind, keys - lead)
        return cls(
            blind, lead, pairs, queries - blind - pairs, max(ROWS // heads // block, 1) * block
        )

    def pieces(self) -> list[Piece]:
        """The pairs, whole blocks first."""
        whole = self.pairs // linear_piece.BLOCK * linear_piece.BLOCK
        spans = stretches(0, whole, self.most) + stretches(whole, self.pairs, self.most)
        return [Piece(self.blind + start, self.lead + start, size) for start, size in spans]


# Keys (n, size, F) and values (n, size, Dv) from a start on; hidden keys −inf, hidden values 0.
Load = Callable[[int, int], tuple[Tensor, Tensor]]


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


def meet(
    load: Load, state: LinearState, pieces: list[Piece]
) -> Iterator[tuple[Piece, Gentle | Steep, LinearState]]:
    """Walk the pairs piece by piece, each with the state after it.

    A piece in which a maximum climbs too far to be shared is halved until it is short enough for
    every query to have its own. One with a number that is not finite is halved down to single
    positions: the number harms its own position and those after, and no position before.
    """
    todo = pieces[::-1]
    while todo:
        piece = todo.pop()
        key, value = load(piece.key, piece.size)
        climbed = _climbed(state, key, value) if piece.size > 1 else 0.0
        way: type[Gentle] | type[Steep] = Gentle
        if not climbed <= CLIMB[key.dtype]:
            if piece.size > STEEP or math.isnan(climbed):
                todo += _halves(piece)
                continue
            way = Steep
        part, state = way.meet(key, value, state)
        yield piece, part, state


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


def _climbed(state: LinearState, key: Tensor, value: Tensor) -> float:
    """How far a maximum climbs above what the first query of a piece sees.

    Not a number where the piece spoils a head that was sound; a head spoiled before is beyond help.
    """
    highest = torch.maximum(state.maximum, peak(key))
    climbed = highest - torch.maximum(state.maximum, key[:, :1])
    climbed = climbed.masked_fill(highest == torch.finfo(key.dtype).min, 0)  # no key at all
    spoils = 0 * value.sum((1, 2))  # (n,)
    sound = (state.sums.sum((1, 2)) + state.normalizer.sum((1, 2))).isfinite()
    steepest = (climbed.amax((1, 2)) + spoils).masked_fill(~sound, 0).amax()
    if torch._C._are_functorch_transforms_active():
        steepest = _over_everything(steepest.detach())
    return steepest.item()


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
    if left >= linear_piece.BLOCK:
        left = left // linear_piece.BLOCK * linear_piece.BLOCK
    right = Piece(piece.query + left, piece.key + left, piece.size - left)
    return [right, piece._replace(size=left)]
