"""Efficient attention: O(n) time and memory. Shen et al. 2018, arXiv 1812.01243.

Queries are normalized over their features, keys over their positions:

    output = ρq(Q) · (ρk(K)ᵀ V)        ρq = softmax over features, ρk = softmax over positions

so the M×N map is never computed: the context ρk(K)ᵀ V is F×Dv. The causal form normalizes the
keys anew at every position,

    output_i = Σ_f ρq(q_i)_f · (Σ_{j≤i} e^{k_jf} v_j) / (Σ_{j≤i} e^{k_jf}).

Per feature f the keys so far leave two sums behind, relative to the largest of them, so that no
exponential can overflow:

    sums[f] = Σ_j e^{k_jf − max_f} v_j        normalizer[f] = Σ_j e^{k_jf − max_f}

The maxima cancel out of every result, so to differentiation they are constants. A hidden key is
−inf and adds nothing to either sum. The causal form goes through the sequence in pieces, which
backward computes again.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.core.blocks import can_inspect_values, in_functorch, recomputed
from regard.core.score import precise
from regard.core.shapes import broadcast

BLOCK = 64  # positions whose pairs are multiplied out; a piece has several blocks
ROWS = 4096  # positions x heads in a piece: its tensors stay in the cache

# How far a maximum may rise inside a piece that shares it. Within these limits nothing overflows,
# and the rounding of the exponents stays below the tolerance of float32 and float64 (1e-5, 1e-9).
MAX_RISE = {torch.float32: 20.0, torch.float64: 300.0}


class LinearState(NamedTuple):
    """What efficient attention keeps of all previous keys: O(F·Dv), however many there were."""

    sums: Tensor  # (..., F, Dv)
    normalizer: Tensor  # (..., 1, F)
    maximum: Tensor  # (..., 1, F), −inf before the first key

    def reorder(self, index: Tensor) -> LinearState:
        """The state of other beams: entry i becomes what entry index[i] was, on the first dim."""
        return LinearState(*(part.index_select(0, index) for part in self))


def linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None = None,
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
        visible: bool, broadcastable to (..., N); True = the key may be attended
        causal: query i sees the keys j ≤ i + offset
        offset: N − M unless given, so that the last query sees the last key

    Returns: (..., M, Dv); zeros for a query that sees no key
    """
    with _full_precision(query):
        key, value = _hide(key, visible, -math.inf), _hide(value, visible, 0)
        if causal:
            offset = key.shape[-2] - query.shape[-2] if offset is None else offset
            prefix = min(max(offset, 0), key.shape[-2])  # the keys that every query sees
            # One split instead of two slices, whose backward fills whole tensors with zeros.
            (before, key), (first, value) = (
                x.split([prefix, x.shape[-2] - prefix], -2) for x in (key, value)
            )
            output = _causal(query, key, value, _sum(before, first), max(-offset, 0))
        else:
            output = _read(query, _sum(key, value))
    return output.to(query.dtype)


def linear_context(key: Tensor, value: Tensor, *, visible: Tensor | None = None) -> Tensor:
    """The context ρk(K)ᵀ V that every query of bidirectional efficient attention reads.

    >>> linear_context(torch.zeros(4, 3), torch.ones(4, 2))
    tensor([[1., 1.],
            [1., 1.],
            [1., 1.]])

    Args:
        key: (..., N, F)
        value: (..., N, Dv)
        visible: bool, broadcastable to (..., N)

    Returns: (..., F, Dv); row f belongs to feature f of the queries. Zeros if no key is visible.
    """
    with _full_precision(key):
        state = _sum(_hide(key, visible, -math.inf), _hide(value, visible, 0))
        return _context(state).to(value.dtype)


def linear_rows(
    query: Tensor,
    key: Tensor,
    rows: slice,
    *,
    visible: Tensor | None = None,
    causal: bool = False,
    offset: int | None = None,
) -> Tensor:
    """Rows of the attention map that efficient attention implies: ρq(Q) ρk(K)ᵀ.

    They are its outputs for the unit vectors as values, of which none but those of the rows'
    own keys are written out.

    >>> weights = linear_rows(torch.randn(7, 3), torch.randn(11, 3), slice(2, 5))
    >>> weights.shape, bool(weights.sum(-1).allclose(torch.ones(3)))
    (torch.Size([3, 11]), True)

    Args:
        query: (..., M, F)
        key: (..., N, F)
        rows: which queries, from start to stop
        visible, causal, offset: as for `linear`

    Returns: (..., rows, N); a row sums to 1, to 0 where the query sees no key
    """
    queries, keys = query.shape[-2], key.shape[-2]
    start, stop, _ = rows.indices(queries)
    query, key = query[..., start : max(start, stop), :], _hide(key, visible, -math.inf)
    offset = (keys - queries if offset is None else offset) + start if causal else keys
    prefix = min(max(offset, 0), keys)
    own = min(max(offset + query.shape[-2], prefix), keys) - prefix
    with _full_precision(query):
        state = _sum(key[..., :prefix, :])
        state = state._replace(sums=pad(state.sums, (0, keys - prefix)))
        unit = torch.eye(own, dtype=key.dtype, device=key.device)
        unit = pad(unit, (prefix, keys - prefix - own))
        weights = _causal(query, key.narrow(-2, prefix, own), unit, state, max(-offset, 0))
    return weights.to(query.dtype)


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
    kept = precise(dtype)
    return LinearState(
        torch.zeros(*leading, features, value_dim, dtype=kept, device=device),
        torch.zeros(*leading, 1, features, dtype=kept, device=device),
        torch.full((*leading, 1, features), -math.inf, dtype=kept, device=device),
    )


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
    with _full_precision(query):
        state = _add(state, key.to(state.sums.dtype), value.to(state.sums.dtype))
        return _read(query, state).to(value.dtype), state


def _causal(query: Tensor, key: Tensor, value: Tensor, state: LinearState, blind: int) -> Tensor:
    """Outputs (..., M, Dv): query blind + i sees the keys in the state and key 0 to i.

    Those before see no key, and those behind the last key see all of them.
    """
    leading = broadcast(*(x.shape[:-2] for x in (query, key, value, state.sums)))
    query, key, value = (x.expand(*leading, *x.shape[-2:]) for x in (query, key, value))
    state = LinearState(*(x.expand(*leading, *x.shape[-2:]) for x in state))
    queries, keys = query.shape[-2], key.shape[-2]
    blind = min(blind, queries)
    pairs = min(queries - blind, keys)
    rows = 16 * ROWS if torch.compiler.is_compiling() else ROWS  # a short graph compiles sooner
    together = max(rows // max(math.prod(leading), 1) // BLOCK, 1) * BLOCK
    whole = pairs // BLOCK * BLOCK
    sizes = [min(together, whole - at) for at in range(0, whole, together)]
    sizes += [pairs - whole] * (whole < pairs)

    none, *reads, rest = query.split([blind, *sizes, queries - blind - pairs], -2)
    writes = (x.split([*sizes, keys - pairs], -2)[:-1] for x in (key, value))
    again = len(sizes) > 1 and torch.is_grad_enabled() and not in_functorch()
    outputs = [value.new_zeros(*none.shape[:-1], value.shape[-1])]
    for piece in zip(reads, *writes, strict=True):
        output, *after = recomputed(_piece, *piece, *state) if again else _piece(*piece, *state)
        outputs.append(output)
        state = LinearState(*after)
    return torch.cat([*outputs, _read(rest, state)], -2)


def _piece(query: Tensor, key: Tensor, value: Tensor, *before: Tensor) -> tuple[Tensor, ...]:
    """Outputs (..., c, Dv) of c queries that see the keys up to their own, and the state after.

    Own maxima serve all numbers. A shared one is faster, but whether it serves depends on the
    numbers, which a compiler and `torch.func` do not let us look at.
    """
    leading = query.shape[:-2]
    query, key, value, *before = (  # type: ignore[assignment]
        x.reshape(math.prod(leading), *x.shape[-2:]) for x in (query, key, value, *before)
    )
    state, weight = LinearState(*before), query.to(key.dtype).softmax(-1)
    shared = can_inspect_values(key, value) and _is_flat(state, key, value)
    output, after = (_shared_maximum if shared else _own_maxima)(weight, key, value, state)
    return tuple(x.view(*leading, *x.shape[1:]) for x in (output, *after))


def _is_flat(state: LinearState, key: Tensor, value: Tensor) -> bool:
    """Whether one maximum serves all positions, and all values are finite."""
    highest = torch.maximum(state.maximum, _largest(key))
    rise = highest - torch.maximum(state.maximum, key[:, :1].detach())
    rise = rise.masked_fill(highest == torch.finfo(key.dtype).min, 0)  # no key at all
    return bool((rise <= MAX_RISE[key.dtype]).all() & value.detach().sum().isfinite())


def _shared_maximum(
    weight: Tensor, key: Tensor, value: Tensor, state: LinearState
) -> tuple[Tensor, LinearState]:
    """Outputs (n, size, Dv) and the state after a piece, of b blocks of c positions.

    With e = e^{k − maximum} and S, z the state before a block, relative to the same maximum:

        Z_i = z + Σ_{j≤i} e_j        p = ρq(Q) / Z        output = p S + tril(p eᵀ) V
    """
    powers, base = _rescale(state, key)
    (heads, size, features), value_dim = key.shape, value.shape[-1]
    block = BLOCK if size % BLOCK == 0 else size
    count, blocks = size // block, heads * size // block
    powers, weight, value = (x.reshape(blocks, block, x.shape[-1]) for x in (powers, weight, value))
    below, strict = (
        torch.ones(length, length, dtype=key.dtype, device=key.device).tril(diagonal)
        for length, diagonal in ((block, 0), (count, -1))
    )

    # the state before each block, from the sums of each
    strict = strict.expand(heads, count, count)
    added = torch.bmm(powers.mT, value).view(heads, count, features * value_dim)
    sums = torch.baddbmm(base.sums.flatten(1)[:, None], strict, added)
    mass = powers.sum(1).view(heads, count, features)
    normalizer = torch.baddbmm(base.normalizer, strict, mass)
    last = (sums[:, -1] + added[:, -1]).view(base.sums.shape), normalizer[:, -1:] + mass[:, -1:]

    normalizer = _nonzero(normalizer).view(blocks, 1, features)
    share = weight / torch.baddbmm(normalizer, below.expand(blocks, block, block), powers)
    read = torch.bmm(share, sums.view(blocks, features, value_dim))
    output = torch.baddbmm(read, torch.bmm(share, powers.mT).tril(), value)
    return output.view(heads, size, value_dim), LinearState(*last, base.maximum)


def _own_maxima(
    weight: Tensor, key: Tensor, value: Tensor, state: LinearState
) -> tuple[Tensor, LinearState]:
    """The same with a maximum m_i for each query, so that no exponent is positive.

    A query reads its own key, the state before, and of every span of 2, 4, 8, … positions in whose
    second half it lies, the first half: e^{k_j − m_i} = e^{k_j − top} e^{top − m_i} with top the
    largest key of that half. So a number that is not finite reaches no position before its own.
    """
    after, size, steps = _add(state, key, value), key.shape[-2], [1]
    while steps[-1] < size:
        steps.append(2 * steps[-1])
    rest = (0, 0, 0, steps.pop() - size)
    weight, value, key = pad(weight, rest), pad(value, rest), pad(key, rest, value=-math.inf)
    maximum = torch.maximum(state.maximum, _finite(key.detach()))
    for step in steps:
        earlier = pad(maximum[:, :-step], (0, 0, step, 0), value=-math.inf)
        maximum = torch.maximum(maximum, earlier)

    own, shrink, halves = _exp(key - maximum), _exp(state.maximum - maximum), []
    total = shrink * state.normalizer + own
    for step in steps:
        first, reader = _halves(key, step)[0], _halves(maximum, step)[1]
        top = _largest(first)
        halves.append((_exp(first - top), _exp(top - reader)))
        total = total + _second_half(halves[-1][1] * halves[-1][0].sum(-2, keepdim=True))
    share = weight / _nonzero(total)
    output = torch.bmm(share * shrink, state.sums) + (share * own).sum(-1, keepdim=True) * value
    for step, (powers, factor) in zip(steps, halves, strict=True):
        read, written = _halves(share, step)[1] * factor, _halves(value, step)[0]
        short = step < value.shape[-1]
        part = (read @ powers.mT) @ written if short else read @ (powers.mT @ written)
        output = output + _second_half(part)
    return output[:, :size], after


def _halves(tensor: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """(n, length, D) as the halves of spans of 2 · step, (n, spans, step, D) each."""
    first, second = tensor.unflatten(1, (-1, 2, step)).unbind(2)
    return first, second


def _second_half(tensor: Tensor) -> Tensor:
    """The second halves of spans, (n, spans, step, D), back to (n, length, D), zeros elsewhere."""
    return pad(tensor, (0, 0, tensor.shape[-2], 0)).flatten(1, 2)


def _sum(key: Tensor, value: Tensor | None = None) -> LinearState:
    """The state after keys (..., N, F) and values (..., N, Dv); unit vectors if not given."""
    maximum = _largest(key)
    powers = _exp(key - maximum)
    sums = powers.mT if value is None else powers.mT @ value
    return LinearState(sums, powers.sum(-2, keepdim=True), maximum)


def _add(state: LinearState, key: Tensor, value: Tensor) -> LinearState:
    """The state after more keys (..., N, F) and values (..., N, Dv), N ≥ 1."""
    powers, base = _rescale(state, key)
    normalizer = base.normalizer + powers.sum(-2, keepdim=True)
    return LinearState(base.sums + powers.mT @ value, normalizer, base.maximum)


def _rescale(state: LinearState, key: Tensor) -> tuple[Tensor, LinearState]:
    """The powers e^{k − maximum} of new keys, and the state relative to that same maximum."""
    maximum = torch.maximum(state.maximum, _largest(key))
    shrink = _exp(state.maximum - maximum)
    base = LinearState(state.sums * shrink.mT, state.normalizer * shrink, maximum)
    return _exp(key - maximum), base


def _read(query: Tensor, state: LinearState) -> Tensor:
    """Outputs (..., M, Dv) of queries that see all keys of the state."""
    return query.to(state.sums.dtype).softmax(-1) @ _context(state)


def _context(state: LinearState) -> Tensor:
    """ρk(K)ᵀ V of the keys in the state, (..., F, Dv); zero where there was no key."""
    return state.sums / _nonzero(state.normalizer).mT


def _hide(tensor: Tensor, visible: Tensor | None, instead: float) -> Tensor:
    """Keys or values in the summing precision, with the hidden ones replaced."""
    tensor = tensor.to(precise(tensor.dtype))
    return tensor if visible is None else torch.where(visible.unsqueeze(-1), tensor, instead)


def _exp(exponent: Tensor) -> Tensor:
    """e^x, written over x.

    By way of 2^x: where a result underflows, as it does for every hidden key, torch's exp on the
    CPU takes up to forty times as long.
    """
    return exponent.mul_(math.log2(math.e)).exp2_()


def _largest(key: Tensor) -> Tensor:
    """Per feature the largest key, (..., 1, F), a finite constant, even without any key."""
    if not key.shape[-2]:
        lowest = torch.finfo(key.dtype).min
        return key.new_full((*key.shape[:-2], 1, key.shape[-1]), lowest)
    return _finite(key.detach().amax(-2, keepdim=True))


def _finite(maximum: Tensor) -> Tensor:
    """With the lowest number in place of −inf, which cannot be subtracted from itself."""
    return maximum.clamp(min=torch.finfo(maximum.dtype).min)


def _nonzero(normalizer: Tensor) -> Tensor:
    """The normalizer, where a 0, from no keys at all, is made safe to divide by.

    What is added is below the rounding of the smallest other normalizer, e^−MAX_RISE.
    """
    return normalizer + torch.finfo(normalizer.dtype).tiny ** 0.5


def _full_precision(tensor: Tensor) -> AbstractContextManager:
    """A context in which mixed precision does not round the sums."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)
