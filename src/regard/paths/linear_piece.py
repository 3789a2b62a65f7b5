"""Two ways to answer a few queries that go in pairs with as many keys, given the state before.

Gentle: one maximum serves all positions, so exponentials are shared and everything is a matrix
product. With e = e^{k − maximum} and S, z the state before, relative to the same maximum:

    Z_i = z + Σ_{j≤i} e_j        p = ρq(Q) / Z        output = p S + tril(p eᵀ) V

Steep: the maximum climbs too far for that, so each query has its own, m_i. With
E_ij = e^{k_j − m_i} for j ≤ i, w_i = e^{maximum before − m_i} and S, z as they were before:

    Z_i = w_i z + Σ_j E_ij       p = ρq(Q) / Z        output = (p w) S + (Σ_f p E) V
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.paths.linear_state import LinearState, climb, peak, positive, power

BLOCK = 64  # positions whose pairs are multiplied out; a gentle piece holds several blocks


class Gentle(NamedTuple):
    """Keys in blocks of c positions; the (n, b) blocks lie in one dimension."""

    powers: Tensor  # e, (nb, c, F)
    value: Tensor  # (nb, c, Dv)
    sums: Tensor  # S before each block, (nb, F, Dv)
    normalizer: Tensor  # z before each block, (nb, 1, F)
    shrink: Tensor  # e^{maximum before the piece − maximum}, (n, 1, F)
    maximum: Tensor  # (n, 1, F)

    @classmethod
    def meet(cls, key: Tensor, value: Tensor, state: LinearState) -> tuple[Gentle, LinearState]:
        """The keys (n, size, F) and values (n, size, Dv) of a piece, and the state after it."""
        powers, shrink, base = climb(state, key)
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
        sums, normalizer = (
            sums.view(len(powers), features, value_dim),
            normalizer.view(len(powers), 1, features),
        )
        return cls(powers, value, sums, normalizer, shrink, base.maximum), after

    def answer(self, query: Tensor) -> Tensor:
        """Outputs (n, size, Dv) of the queries (n, size, F)."""
        share, _ = self.shares(in_blocks(query.softmax(-1)))
        output = torch.baddbmm(torch.bmm(share, self.sums), self.inside(share), self.value)
        return output.view(*query.shape[:2], self.value.shape[-1])

    def shares(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """p = ρq(Q) / Z and Z, both (nb, c, F)."""
        blocks, size, _ = self.powers.shape
        below = triangle(self.powers, size).expand(blocks, size, size)
        total = torch.baddbmm(positive(self.normalizer), below, self.powers)
        return weight / total, total

    def inside(self, share: Tensor) -> Tensor:
        """The attention map inside each block, (nb, c, c)."""
        return torch.bmm(share, self.powers.mT).tril()

    def forget(self) -> Gentle:
        """Without the keys and values, which can be loaded again."""
        return self._replace(powers=self.shrink, value=self.shrink)

    def recall(self, key: Tensor, value: Tensor) -> Gentle:
        """With them again."""
        powers = power(key - self.maximum)
        return self._replace(powers=in_blocks(powers), value=in_blocks(value))


class Steep(NamedTuple):
    """Keys of which each has a maximum of its own."""

    key: Tensor  # (n, c, F)
    value: Tensor  # (n, c, Dv)
    before: LinearState

    @classmethod
    def meet(cls, key: Tensor, value: Tensor, state: LinearState) -> tuple[Steep, LinearState]:
        """The keys (n, c, F) and values (n, c, Dv) of a piece, and the state after it."""
        powers, _, base = climb(state, key)
        after = LinearState(
            torch.baddbmm(base.sums, powers.mT, value),
            base.normalizer + powers.sum(-2, keepdim=True),
            base.maximum,
        )
        return cls(key, value, state), after

    def answer(self, query: Tensor) -> Tensor:
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
        maximum = torch.maximum(self.before.maximum, peak(key).squeeze(-2))  # (n, c, F)
        return power(key - maximum.unsqueeze(-2)), power(self.before.maximum - maximum)

    def shares(self, weight: Tensor, powers: Tensor, shrink: Tensor) -> tuple[Tensor, Tensor]:
        """p = ρq(Q) / Z and Z, both (n, c, F)."""
        total = positive(shrink * self.before.normalizer + powers.sum(-2))
        return weight / total, total

    def forget(self) -> Steep:
        """Without the keys and values, which can be loaded again."""
        return self._replace(key=self.before.maximum, value=self.before.maximum)

    def recall(self, key: Tensor, value: Tensor) -> Steep:
        """With them again."""
        return self._replace(key=key, value=value)


def in_blocks(tensor: Tensor) -> Tensor:
    """(n, size, D) as (nb, c, D); what is not whole blocks is one block."""
    heads, length, last = tensor.shape
    size = BLOCK if length % BLOCK == 0 else length
    return tensor.reshape(heads * (length // size), size, last)


def triangle(like: Tensor, size: int, diagonal: int = 0) -> Tensor:
    """Ones on and below a diagonal, (size, size)."""
    return torch.ones(size, size, dtype=like.dtype, device=like.device).tril_(diagonal)
