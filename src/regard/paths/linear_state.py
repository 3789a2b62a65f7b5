"""What efficient attention remembers of the keys it has passed, and decoding one step at a time.

Per feature f the keys seen so far leave two sums behind, both relative to the largest of them so
that no exponential can overflow:

    sums[f] = Σ_j e^{k_jf − max_f} v_j        normalizer[f] = Σ_j e^{k_jf − max_f}

A key of −inf is one that nobody sees: it adds nothing to either.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

# How far a running maximum may climb inside one piece of the sequence. Within it exponentials may
# be shared between positions: nothing overflows, and the rounding of the exponents stays below
# what float32 and float64 are asked to hold (1e-5 and 1e-9).
CLIMB = {torch.float32: 20.0, torch.float64: 300.0}
NOTHING = {torch.float32: 1e-20, torch.float64: 1e-160}


class LinearState(NamedTuple):
    """Everything the past leaves behind: O(F·Dv), however long it was."""

    sums: Tensor  # (..., F, Dv)
    normalizer: Tensor  # (..., 1, F)
    maximum: Tensor  # (..., 1, F), −inf before the first key

    def reorder(self, index: Tensor) -> LinearState:
        """The state of other beams: entry i becomes what entry index[i] was, on the first dim."""
        return LinearState(*(part.index_select(0, index) for part in self))


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
    kept = accumulating(dtype)
    return LinearState(
        torch.zeros(*leading, features, value_dim, dtype=kept, device=device),
        torch.zeros(*leading, 1, features, dtype=kept, device=device),
        torch.full((*leading, 1, features), -math.inf, dtype=kept, device=device),
    )


def linear_step(
    query: Tensor, key: Tensor, value: Tensor, state: LinearState
) -> tuple[Tensor, LinearState]:
    """One position of causal efficient attention: take its key in, then answer its query.

    >>> state = linear_start((2,), 3, 5)
    >>> query, key, value = torch.ones(2, 1, 3), torch.ones(2, 1, 3), torch.ones(2, 1, 5)
    >>> output, state = linear_step(query, key, value, state)
    >>> output[0, 0]
    tensor([1., 1., 1., 1., 1.])

    Args:
        query: (..., 1, F)
        key: (..., 1, F)
        value: (..., 1, Dv)
        state: of all positions before this one

    Returns: output (..., 1, Dv) and the state that includes this position. Over a whole sequence
        the outputs are those of ``linear(..., causal=True)``.
    """
    if not query.shape[-2] == key.shape[-2] == value.shape[-2] == 1:
        raise ValueError(
            "linear_step takes one position at a time, query and key (..., 1, F) and value "
            f"(..., 1, Dv); got {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}; "
            "for a whole sequence call linear(..., causal=True)"
        )
    kept = state.sums.dtype
    with exactly(query):
        powers, _, base = climb(state, key.to(kept))
        sums = base.sums + powers.mT * value.to(kept)
        after = LinearState(sums, base.normalizer + powers, base.maximum)
        output = query.to(kept).softmax(-1) @ context(after)  # (..., 1, Dv)
    return output.to(value.dtype), after


def climb(state: LinearState, key: Tensor) -> tuple[Tensor, Tensor, LinearState]:
    """The powers e^{k − maximum} of new keys, and the state relative to that same maximum.

    Args:
        state: of the keys before
        key: (..., N, F), N ≥ 1

    Returns: powers (..., N, F) in [0, 1]; what the state shrank by, (..., 1, F); that state
    """
    highest = torch.maximum(state.maximum, peak(key))
    shrink = power(state.maximum - highest)
    base = LinearState(state.sums * shrink.mT, state.normalizer * shrink, highest)
    return power(key - highest), shrink, base


def power(exponent: Tensor) -> Tensor:
    """e^x, written over x where that is possible.

    By way of 2^x: where a result underflows, as it does for every hidden key, torch's exp on the
    CPU takes a hundred times as long.
    """
    return exponent.mul_(math.log2(math.e)).exp2_()


def peak(key: Tensor) -> Tensor:
    """Per feature the largest key, (..., 1, F); finite, even where there is no key.

    It cancels out of every result, so to differentiation it is a constant.
    """
    lowest = torch.finfo(key.dtype).min
    if not key.shape[-2]:
        return key.new_full((*key.shape[:-2], 1, key.shape[-1]), lowest)
    return key.detach().amax(-2, keepdim=True).clamp(min=lowest)


def context(state: LinearState) -> Tensor:
    """ρk(K)ᵀ V of the keys in the state, (..., F, Dv); zero where there was no key."""
    return state.sums / positive(state.normalizer).mT


def positive(normalizer: Tensor) -> Tensor:
    """The normaliser, with the 0 of "no key yet" made safe to divide by.

    What is added is below the rounding of the smallest normaliser there can be, e^−CLIMB.
    """
    return normalizer + NOTHING[normalizer.dtype]


def exactly(tensor: Tensor) -> torch.autocast:
    """A context in which mixed precision does not round the sums."""
    return torch.autocast(tensor.device.type, enabled=False)


def accumulating(dtype: torch.dtype) -> torch.dtype:
    """The precision to sum in: float64 for itself, float32 for everything else."""
    return torch.float64 if dtype == torch.float64 else torch.float32
