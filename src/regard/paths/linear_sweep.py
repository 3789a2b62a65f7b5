"""Efficient attention in one sweep over pieces of the sequence, with a running state.

First the keys that every query sees are added to the state, then queries and keys go in pairs,
each query with the last key it may see, then the other queries read the final state. Bidirectional
attention has no pairs, causal attention of one sequence has nothing else.

Per feature f the keys so far leave two sums behind, relative to the largest of them, so that no
exponential can overflow:

    sums[f] = Σ_j e^{k_jf − max_f} v_j        normalizer[f] = Σ_j e^{k_jf − max_f}

A hidden key is −inf: it adds nothing to either. There are two kinds of pieces. Where one maximum
serves all positions, exponentials are shared and everything is a matrix product. With
e = e^{k − maximum} and S, z the state before, relative to the same maximum:

    Z_i = z + Σ_{j≤i} e_j        p = ρq(Q) / Z        output = p S + tril(p eᵀ) V

Where the maximum rises too far for that, each query has its own, m_i. With E_ij = e^{k_j − m_i}
for j ≤ i, w_i = e^{maximum before − m_i} and S, z as they were before:

    Z_i = w_i z + Σ_j E_ij       p = ρq(Q) / Z        output = (p w) S + (Σ_f p E) V
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.amp import is_autocast_available

BLOCK = 64  # positions whose pairs are multiplied out; a piece with one maximum has several blocks
ROWS = 4096  # positions x heads in a piece: its tensors stay in the cache
SHORT = 16  # positions of a piece in which every query has its own maximum

# How far a maximum may rise inside a piece that shares it. Within these limits nothing overflows,
# and the rounding of the exponents stays below the tolerance of float32 and float64 (1e-5, 1e-9).
MAX_RISE = {torch.float32: 20.0, torch.float64: 300.0}
TINY = {torch.float32: 1e-20, torch.float64: 1e-160}


class LinearState(NamedTuple):
    """What efficient attention keeps of all previous keys: O(F·Dv), however many there were."""

    sums: Tensor  # (..., F, Dv)
    normalizer: Tensor  # (..., 1, F)
    maximum: Tensor  # (..., 1, F), −inf before the first key

    def reorder(self, index: Tensor) -> LinearState:
        """The state of other beams: entry i becomes what entry index[i] was, on the first dim."""
        return LinearState(*(part.index_select(0, index) for part in self))


def rescale(state: LinearState, key: Tensor) -> tuple[Tensor, Tensor, LinearState]:
    """The powers e^{k − maximum} of new keys, and the state relative to that same maximum.

    Args:
        state: of the previous keys
        key: (..., N, F), N ≥ 1

    Returns: powers (..., N, F) in [0, 1]; the factor applied to the state, (..., 1, F); that state
    """
    highest = torch.maximum(state.maximum, largest(key))
    shrink = exp(state.maximum - highest)
    base = LinearState(state.sums * shrink.mT, state.normalizer * shrink, highest)
    return exp(key - highest), shrink, base


def add_keys(state: LinearState, key: Tensor, value: Tensor) -> LinearState:
    """The state (n, ...) after keys (n, N, F) and values (n, N, Dv)."""
    powers, _, base = rescale(state, key)
    return LinearState(
        torch.baddbmm(base.sums, powers.mT, value),
        base.normalizer + powers.sum(-2, keepdim=True),
        base.maximum,
    )


def exp(exponent: Tensor) -> Tensor:
    """e^x, written over x where that is possible.

    By way of 2^x: where a result underflows, as it does for every hidden key, torch's exp on the
    CPU takes a hundred times as long.
    """
    return exponent.mul_(math.log2(math.e)).exp2_()


def largest(key: Tensor) -> Tensor:
    """Per feature the largest key, (..., 1, F); finite, even without any key.

    It cancels out of every result, so to differentiation it is a constant.
    """
    lowest = torch.finfo(key.dtype).min
    if not key.shape[-2]:
        return key.new_full((*key.shape[:-2], 1, key.shape[-1]), lowest)
    return key.detach().amax(-2, keepdim=True).clamp(min=lowest)


def context(state: LinearState) -> Tensor:
    """ρk(K)ᵀ V of the keys in the state, (..., F, Dv); zero where there was no key."""
    return state.sums / nonzero(state.normalizer).mT


def nonzero(normalizer: Tensor) -> Tensor:
    """The normalizer, where a 0, from no keys at all, is made safe to divide by.

    What is added is below the rounding of the smallest other normalizer, e^−MAX_RISE.
    """
    return normalizer + TINY[normalizer.dtype]


def full_precision(tensor: Tensor) -> AbstractContextManager:
    """A context in which mixed precision does not round the sums."""
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if is_autocast_available(device) else nullcontext()


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to sum in: float64 for itself, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Piece(NamedTuple):
    """Queries and keys that go in pairs: where they start and how many they are."""

    query: int
    key: int
    size: int

    def halves(self) -> list[Piece]:
        """Both halves, the earlier one last; blocks stay whole while there are two."""
        left = self.size // 2
        if left >= BLOCK:
            left = left // BLOCK * BLOCK
        return [
            Piece(self.query + left, self.key + left, self.size - left),
            self._replace(size=left),
        ]


class Plan(NamedTuple):
    """The parts of a sweep in which query i sees keys up to i + offset."""

    blind: int  # queries at the start that see nothing
    prefix: int  # keys at the start that every other query sees
    pairs: int  # queries that each see one key more than the query before
    suffix: int  # queries at the end that see all keys
    piece: int  # positions in a piece

    @classmethod
    def of(cls, query: Tensor, key: Tensor, offset: int) -> Plan:
        queries, keys, heads = query.shape[-2], key.shape[-2], math.prod(key.shape[:-2])
        if not heads:  # an empty batch has nothing to sweep
            return cls(0, 0, 0, 0, BLOCK)
        blind = min(max(-offset, 0), queries)
        prefix = min(max(offset, 0), keys)
        pairs = min(queries - blind, keys - prefix)
        piece = max(ROWS // heads // BLOCK, 1) * BLOCK
        return cls(blind, prefix, pairs, queries - blind - pairs, piece)

    def pieces(self) -> list[Piece]:
        """The pairs, whole blocks first."""
        whole = self.pairs // BLOCK * BLOCK
        parts = spans(0, whole, self.piece) + spans(whole, self.pairs, self.piece)
        return [Piece(self.blind + start, self.prefix + start, size) for start, size in parts]


# Keys (n, size, F) and values (n, size, Dv) from a start on; hidden keys −inf, hidden values 0.
Load = Callable[[int, int], tuple[Tensor, Tensor]]


def loader(key: Tensor, value: Tensor, seen: Tensor | None) -> Load:
    """Loads parts of keys (..., N, F) and values (..., N, Dv), seen (..., N) where given."""

    def load(start: int, size: int) -> tuple[Tensor, Tensor]:
        k, v = take(key, start, size), take(value, start, size)
        if seen is None:
            return k, v
        hidden = ~seen.narrow(-1, start, size).reshape(len(k), size, 1)
        return k.masked_fill(hidden, -math.inf), v.masked_fill(hidden, 0)

    return load


def take(tensor: Tensor, start: int, size: int) -> Tensor:
    """Positions [start, start + size) of (..., L, D), as (n, size, D) in the dtype of sums."""
    part = tensor.narrow(-2, start, size).to(sum_dtype(tensor.dtype))
    return part.reshape(math.prod(part.shape[:-2]), *part.shape[-2:])


def spans(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """[start, stop) as (start, size) of at most ``most`` each."""
    return [(at, min(most, stop - at)) for at in range(start, stop, most)]


def add_prefix(load: Load, state: LinearState, plan: Plan) -> LinearState:
    """The state after the keys that every query sees."""
    for start, size in spans(0, plan.prefix, plan.piece):
        state = add_keys(state, *load(start, size))
    return state


def walk(
    load: Load, state: LinearState, pieces: list[Piece]
) -> Iterator[tuple[Piece, SharedMaximum | OwnMaximum, LinearState]]:
    """Go through the pairs piece by piece, each with the state after it.

    A piece in which a maximum rises too far to be shared is halved until it is short enough for
    every query to have its own. One with a number that is not finite is halved down to single
    positions: the number harms its own position and those after, and no position before.
    """
    todo = pieces[::-1]
    while todo:
        piece = todo.pop()
        key, value = load(piece.key, piece.size)
        rise = _rise(state, key, value) if piece.size > 1 else 0.0
        kind: type[SharedMaximum] | type[OwnMaximum] = SharedMaximum
        if not rise <= MAX_RISE[key.dtype]:
            if piece.size > SHORT or math.isnan(rise):
                todo += piece.halves()
                continue
            kind = OwnMaximum
        part, state = kind.of(key, value, state)
        yield piece, part, state


def _rise(state: LinearState, key: Tensor, value: Tensor) -> float:
    """How far a maximum rises above what the first query of a piece sees.

    NaN where the piece makes a head non-finite that was finite before.
    """
    highest = torch.maximum(state.maximum, largest(key))
    rise = highest - torch.maximum(state.maximum, key[:, :1])
    rise = rise.masked_fill(highest == torch.finfo(key.dtype).min, 0)  # no key at all
    nan = (0 * value).sum((1, 2))  # (n,), or zero; the sum of large numbers may be infinite
    finite = (0 * state.sums).sum((1, 2)) + (0 * state.normalizer).sum((1, 2)) == 0
    steepest = (rise.amax((1, 2)) + nan).masked_fill(~finite, 0).amax()
    if torch._C._are_functorch_transforms_active():
        steepest = _over_vmap(steepest.detach())
    return steepest.item()


@torch.library.custom_op("regard::linear_steepest", mutates_args=())
def _over_vmap(steepest: Tensor) -> Tensor:
    """The largest entry, also over the dimensions that vmap hides: one plan serves them all."""
    return steepest.amax()


@_over_vmap.register_fake
def _(steepest):
    return steepest.new_empty(())


@_over_vmap.register_vmap
def _(info, in_dims, steepest):
    return _over_vmap(steepest), None


class SharedMaximum(NamedTuple):
    """A piece with one maximum: keys in blocks of c positions, (n, b) blocks in one dimension."""

    powers: Tensor  # e, (nb, c, F)
    value: Tensor  # (nb, c, Dv)
    sums: Tensor  # S before each block, (nb, F, Dv)
    normalizer: Tensor  # z before each block, (nb, 1, F)
    shrink: Tensor  # e^{maximum before the piece − maximum}, (n, 1, F)
    maximum: Tensor  # (n, 1, F)

    @classmethod
    def of(
        cls, key: Tensor, value: Tensor, state: LinearState
    ) -> tuple[SharedMaximum, LinearState]:
        """The keys (n, size, F) and values (n, size, Dv) of a piece, and the state after it."""
        powers, shrink, base = rescale(state, key)
        powers, value = in_blocks(powers), in_blocks(value)
        heads, features, value_dim = base.sums.shape
        count = len(powers) // heads
        strict = triangle(powers, count, -1).expand(heads, count, count)

        added = torch.bmm(powers.mT, value).view(heads, count, features * value_dim)
        sums = torch.baddbmm(base.sums.flatten(1)[:, None], strict, added)  # (n, b, F Dv)
        mass = powers.sum(1).view(heads, count, features)
        normalizer = torch.baddbmm(base.normalizer, strict, mass)  # (n, b, F)
        after = LinearState(
            (sums[:, -1] + added[:, -1]).view(base.sums.shape),
            normalizer[:, -1:] + mass[:, -1:],
            base.maximum,
        )
        sums = sums.view(len(powers), features, value_dim)
        normalizer = normalizer.view(len(powers), 1, features)
        return cls(powers, value, sums, normalizer, shrink, base.maximum), after

    def output(self, query: Tensor) -> Tensor:
        """Outputs (n, size, Dv) of the queries (n, size, F)."""
        share, _ = self.shares(in_blocks(query.softmax(-1)))
        output = torch.baddbmm(torch.bmm(share, self.sums), self.inside(share), self.value)
        return output.view(*query.shape[:2], self.value.shape[-1])

    def shares(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """p = ρq(Q) / Z and Z, both (nb, c, F)."""
        blocks, size, _ = self.powers.shape
        below = triangle(self.powers, size).expand(blocks, size, size)
        total = torch.baddbmm(nonzero(self.normalizer), below, self.powers)
        return weight / total, total

    def inside(self, share: Tensor) -> Tensor:
        """The attention map inside each block, (nb, c, c)."""
        return torch.bmm(share, self.powers.mT).tril()

    def without_keys(self) -> SharedMaximum:
        """A copy without the keys and values, which can be loaded again."""
        return self._replace(powers=self.shrink, value=self.shrink)

    def with_keys(self, key: Tensor, value: Tensor) -> SharedMaximum:
        powers = exp(key - self.maximum)
        return self._replace(powers=in_blocks(powers), value=in_blocks(value))


class OwnMaximum(NamedTuple):
    """A piece in which every query has its own maximum."""

    key: Tensor  # (n, c, F)
    value: Tensor  # (n, c, Dv)
    before: LinearState

    @classmethod
    def of(cls, key: Tensor, value: Tensor, state: LinearState) -> tuple[OwnMaximum, LinearState]:
        """The keys (n, c, F) and values (n, c, Dv) of a piece, and the state after it."""
        return cls(key, value, state), add_keys(state, key, value)

    def output(self, query: Tensor) -> Tensor:
        """Outputs (n, c, Dv) of the queries (n, c, F)."""
        powers, shrink = self.powers()
        share, _ = self.shares(query.softmax(-1), powers, shrink)
        inside = (powers @ share.unsqueeze(-1)).squeeze(-1)  # (n, c, c)
        return torch.baddbmm(torch.bmm(share * shrink, self.before.sums), inside, self.value)

    def powers(self) -> tuple[Tensor, Tensor]:
        """E, (n, c, c, F), and w, (n, c, F)."""
        size = self.key.shape[-2]
        later = triangle(self.key, size).eq(0).unsqueeze(-1)
        key = self.key.unsqueeze(-3).masked_fill(later, -math.inf)  # (n, c, c, F)
        maximum = torch.maximum(self.before.maximum, largest(key).squeeze(-2))  # (n, c, F)
        return exp(key - maximum.unsqueeze(-2)), exp(self.before.maximum - maximum)

    def shares(self, weight: Tensor, powers: Tensor, shrink: Tensor) -> tuple[Tensor, Tensor]:
        """p = ρq(Q) / Z and Z, both (n, c, F)."""
        total = nonzero(shrink * self.before.normalizer + powers.sum(-2))
        return weight / total, total

    def without_keys(self) -> OwnMaximum:
        """A copy without the keys and values, which can be loaded again."""
        return self._replace(key=self.before.maximum, value=self.before.maximum)

    def with_keys(self, key: Tensor, value: Tensor) -> OwnMaximum:
        return self._replace(key=key, value=value)


def in_blocks(tensor: Tensor) -> Tensor:
    """(n, size, D) as (nb, c, D); what is not whole blocks is one block."""
    heads, length, last = tensor.shape
    size = BLOCK if length % BLOCK == 0 else length
    return tensor.reshape(heads * (length // size), size, last)


def triangle(like: Tensor, size: int, diagonal: int = 0) -> Tensor:
    """Ones on and below a diagonal, (size, size)."""
    return torch.ones(size, size, dtype=like.dtype, device=like.device).tril_(diagonal)
