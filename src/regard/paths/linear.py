"""Efficient attention: O(n) time and memory. Shen et al. 2018, arXiv 1812.01243.

Queries are normalized over their features, keys over their positions:

    output = ρq(Q) · (ρk(K)ᵀ V)        ρq = softmax over features, ρk = softmax over positions

so the M×N map is never computed: the context ρk(K)ᵀ V is F×Dv. The causal form normalizes the
keys anew at every position,

    output_i = Σ_f ρq(q_i)_f · (Σ_{j≤i} e^{k_jf} v_j) / (Σ_{j≤i} e^{k_jf}).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.core.shapes import broadcast
from regard.paths.linear_op import linear_start, sweep
from regard.paths.linear_sweep import (
    LinearState,
    context,
    exp,
    full_precision,
    largest,
    nonzero,
    rescale,
    spans,
    sum_dtype,
)

__all__ = [
    "LinearState",
    "linear",
    "linear_context",
    "linear_rows",
    "linear_start",
    "linear_step",
]

MAP_NUMBERS = 1 << 22  # held at once while rows of the causal map are computed


def linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seen: Tensor | None = None,
    causal: bool = False,
    offset: int | None = None,
) -> Tensor:
    """Efficient attention, ρq(Q) (ρk(K)ᵀ V). Shen et al. 2018, section 3.2.

    >>> q, k, v = torch.randn(2, 7, 3), torch.randn(2, 11, 3), torch.randn(2, 11, 5)
    >>> linear(q, k, v).shape
    torch.Size([2, 7, 5])

    Args:
        query: (..., M, F)
        key: (..., N, F)
        value: (..., N, Dv)
        seen: bool, broadcastable to (..., N); True = the key may be attended
        causal: query i sees the keys j ≤ i + offset
        offset: N − M unless given, so that the last query sees the last key

    Returns: (..., M, Dv); zeros for a query that sees no key

    Raises: ValueError or TypeError if shapes or dtypes do not match
    """
    leading = _check(query, key, value, seen)
    offset = _offset(query, key, causal, offset)
    heads = leading or (1,)
    query, key, value = (x.expand(*heads, *x.shape[-2:]) for x in (query, key, value))
    if seen is not None:
        seen = seen.expand(*heads, key.shape[-2])
    with full_precision(query):
        output = sweep(query, key, value, seen, offset)
    return output.view(*leading, *output.shape[-2:])


def linear_context(key: Tensor, value: Tensor, *, seen: Tensor | None = None) -> Tensor:
    """The context ρk(K)ᵀ V that every query of bidirectional efficient attention reads.

    >>> linear_context(torch.zeros(4, 3), torch.ones(4, 2))
    tensor([[1., 1.],
            [1., 1.],
            [1., 1.]])

    Args:
        key: (..., N, F)
        value: (..., N, Dv)
        seen: bool, broadcastable to (..., N)

    Returns: (..., F, Dv); row f belongs to feature f of the queries. Zeros where no key is seen.
    """
    _check(key, key, value, seen)
    with full_precision(key):
        k, v = _hide(key, seen, -math.inf), _hide(value, seen, 0)
        maximum = largest(k)
        powers = exp(k - maximum)
        state = LinearState(powers.mT @ v, powers.sum(-2, keepdim=True), maximum)
        return context(state).to(value.dtype)


def linear_rows(
    query: Tensor,
    key: Tensor,
    rows: slice,
    *,
    seen: Tensor | None = None,
    causal: bool = False,
    offset: int | None = None,
) -> Tensor:
    """Rows of the attention map that efficient attention implies: ρq(Q) ρk(K)ᵀ.

    >>> weights = linear_rows(torch.randn(7, 3), torch.randn(11, 3), slice(2, 5))
    >>> weights.shape, bool(weights.sum(-1).allclose(torch.ones(3)))
    (torch.Size([3, 11]), True)

    Args:
        query: (..., M, F)
        key: (..., N, F)
        rows: which queries; a step of 1 or more
        seen, causal, offset: as for `linear`

    Returns: (..., rows, N); a row sums to 1, to 0 where the query sees no key
    """
    leading = _check(query, key, key, seen)
    offset = _offset(query, key, causal, offset)
    chosen = range(query.shape[-2])[rows]
    if chosen.step < 1:
        raise ValueError(f"rows must run forward, with a step of 1 or more, got {rows}")
    k = _hide(key, seen, -math.inf)
    weight = query[..., rows, :].to(k.dtype).softmax(-1)
    together = max(len(chosen), 1)
    if causal:
        budget = MAP_NUMBERS // max(math.prod(leading) * key.shape[-1] * chosen.step, 1)
        together = max(math.isqrt(budget), 1)
    parts = [weight.new_zeros(*leading, 0, key.shape[-2])]
    for at, size in spans(0, len(chosen), together):
        with full_precision(query):
            part = _rows(weight.narrow(-2, at, size), k, chosen[at : at + size], offset)
        parts.append(part.expand(*leading, *part.shape[-2:]))
    return torch.cat(parts, -2).to(query.dtype)


def linear_step(
    query: Tensor, key: Tensor, value: Tensor, state: LinearState
) -> tuple[Tensor, LinearState]:
    """One position of causal efficient attention: its output, and the state that includes it.

    >>> state = linear_start((2,), 3, 5)
    >>> query, key, value = torch.ones(2, 1, 3), torch.ones(2, 1, 3), torch.ones(2, 1, 5)
    >>> output, state = linear_step(query, key, value, state)
    >>> output[0, 0]
    tensor([1., 1., 1., 1., 1.])

    Args:
        query: (..., 1, F)
        key: (..., 1, F)
        value: (..., 1, Dv)
        state: of all previous positions

    Returns: output (..., 1, Dv) and the state after this position. Over a whole sequence the
        outputs are those of ``linear(..., causal=True)``.
    """
    if not query.shape[-2] == key.shape[-2] == value.shape[-2] == 1:
        raise ValueError(
            "linear_step takes one position at a time, query and key (..., 1, F) and value "
            f"(..., 1, Dv); got {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}; "
            "for a whole sequence call linear(..., causal=True)"
        )
    kept = state.sums.dtype
    with full_precision(query):
        powers, _, base = rescale(state, key.to(kept))
        sums = base.sums + powers.mT * value.to(kept)
        after = LinearState(sums, base.normalizer + powers, base.maximum)
        output = query.to(kept).softmax(-1) @ context(after)  # (..., 1, Dv)
    return output.to(value.dtype), after


def _rows(weight: Tensor, key: Tensor, chosen: range, offset: int) -> Tensor:
    """Some rows of the map, from ρq of their queries (..., rows, F) and all keys (..., N, F)."""
    length = key.shape[-2]
    first, last = (min(max(row + offset + 1, 0), length) for row in (chosen[0], chosen[-1]))
    far, near = key[..., :first, :], key[..., None, first:last, :]  # seen by all, by some
    row = torch.tensor(chosen, device=key.device)
    later = torch.arange(first, last, device=key.device) > row[:, None] + offset
    near = near.masked_fill(later[..., None], -math.inf)  # (..., rows, near, F)

    summit = largest(far)  # (..., 1, F)
    maximum = torch.maximum(summit, largest(near).squeeze(-2))  # (..., rows, F)
    far, near = exp(far - summit), exp(near - maximum.unsqueeze(-2))
    shrink = exp(summit - maximum)
    total = shrink * far.sum(-2, keepdim=True) + near.sum(-2)
    share = weight / nonzero(total)  # (..., rows, F)
    seen_by_all = (share * shrink) @ far.mT
    seen_by_some = (near @ share.unsqueeze(-1)).squeeze(-1)
    seen_by_none = seen_by_all.new_zeros(*seen_by_all.shape[:-1], length - last)
    return torch.cat([seen_by_all, seen_by_some, seen_by_none], -1)


def _hide(tensor: Tensor, seen: Tensor | None, instead: float) -> Tensor:
    """Keys or values in the summing precision, with the hidden ones replaced."""
    tensor = tensor.to(sum_dtype(tensor.dtype))
    return tensor if seen is None else torch.where(seen.unsqueeze(-1), tensor, instead)


def _offset(query: Tensor, key: Tensor, causal: bool, offset: int | None) -> int:
    """The offset in "query i sees keys up to i + offset", for causal and bidirectional alike."""
    if not causal:
        if offset is not None:
            raise ValueError(f"offset={offset} needs causal=True")
        return key.shape[-2]
    return key.shape[-2] - query.shape[-2] if offset is None else offset


def _check(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> tuple[int, ...]:
    """Raise unless shapes and dtypes match; the common leading sizes."""
    came = (
        f"got query {tuple(query.shape)} {query.dtype}, key {tuple(key.shape)} {key.dtype}, "
        f"value {tuple(value.shape)} {value.dtype}"
    )
    tensors = (query, key, value)
    if any(tensor.dim() < 2 for tensor in tensors):
        raise ValueError(f"query, key and value need a length and a feature dimension; {came}")
    if query.shape[-1] != key.shape[-1] or not key.shape[-1]:
        raise ValueError(f"query and key need the same number of features, one or more; {came}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"each key needs one value: sizes at -2 must be equal; {came}")
    if not key.is_floating_point() or {query.dtype, value.dtype} != {key.dtype}:
        raise TypeError(f"query, key and value must be floats of one dtype: convert them; {came}")
    shapes = [tensor.shape[:-2] for tensor in tensors]
    if seen is not None:
        if seen.dtype != torch.bool:
            raise TypeError(
                f"seen must be a bool tensor, True = may be attended, got {seen.dtype}: pass "
                "`seen != 0` for a mask of ones and zeros"
            )
        if seen.dim() < 1 or seen.shape[-1] not in (1, key.shape[-2]):
            raise ValueError(
                f"seen must have one entry per key, (..., {key.shape[-2]}), got {tuple(seen.shape)}"
            )
        shapes.append(seen.shape[:-1])
    try:
        return tuple(broadcast(*shapes))
    except RuntimeError as error:
        hidden = "" if seen is None else f", seen {tuple(seen.shape)}"
        raise ValueError(f"the leading sizes do not broadcast; {came}{hidden}") from error
