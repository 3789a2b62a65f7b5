"""The gated delta recurrence: linear attention whose state decays and corrects itself.

    S_t = (I − β_t k_t k_tᵀ) diag(α_t) S_{t−1} + β_t k_t v_tᵀ,    o_t = S_tᵀ q_t

Yang et al. 2024 (Gated Delta Networks, eq. 10), with a decay α for every feature as in gated linear
attention. S is (d_k × d_v). The settings of the recurrence:

| decay α | β | name |
|---|---|---|
| a constant | none | retention, Sun et al. 2023, eq. 3 |
| by position, or position and feature | none | gated linear attention, Yang et al. 2023, eq. 3 |
| none | for each position | DeltaNet, Schlag et al. 2021, eq. 24 |
| for each position | for each position | gated DeltaNet |

Without β nothing is corrected and a key is written as it is: S_t = diag(α_t) S_{t−1} + k_t v_tᵀ.
"""

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 64  # positions at a time
CHUNK_BY_FEATURE = 16  # with a decay for each feature, which takes chunk · chunk · d_k numbers


class DeltaInputs(NamedTuple):
    """One sequence per leading index, in float32 or better.

    `log_decay` is log α: (..., N, 1), or (..., N, d_k) with a decay for each feature.
    """

    query: Tensor  # (..., N, d_k)
    key: Tensor  # (..., N, d_k)
    value: Tensor  # (..., N, d_v)
    log_decay: Tensor
    beta: Tensor | None  # (..., N, 1)


def chunked(inputs: DeltaInputs, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Outputs (..., N, d_v) and the last state (..., d_k, d_v), a chunk of positions at a time.

    With Γ the decay since the chunk began, S_t = diag(Γ_t) R_t, where R changes by a delta rule
    without decay: u_t = v_t − R_{t−1}ᵀ (Γ_t k_t) solves one triangular system per chunk.
    """
    size, length = _chunk_size(inputs), inputs.query.shape[-2]
    state = _empty_state(inputs) if state is None else state
    outputs = []
    for start in range(0, length, size):
        part = _slice(inputs, start, min(start + size, length))
        output, state = _one_chunk(part, state)
        outputs.append(output)
    if not outputs:
        return inputs.value[..., :0, :], state
    return torch.cat(outputs, -2), state


def recurrent(inputs: DeltaInputs, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The same by the formula itself, one position at a time: for decoding, and as a reference."""
    state = _empty_state(inputs) if state is None else state
    outputs = []
    for t in range(inputs.query.shape[-2]):
        query, key, value, log_decay, beta = _slice(inputs, t, t + 1)
        state = log_decay.exp().transpose(-1, -2) * state
        if beta is not None:
            value = beta * (value - key @ state)
        state = state + key.transpose(-1, -2) @ value
        outputs.append(query @ state)
    if not outputs:
        return inputs.value[..., :0, :], state
    return torch.cat(outputs, -2), state


def implied_rows(inputs: DeltaInputs, rows: slice) -> Tensor:
    """Rows (..., rows, N) of the map W with o = W v, for an empty state: they may be negative.

    From their last position back to the first, a chunk at a time, goes how much the outputs of the
    rows depend on the state after it, (..., rows, d_k).
    """
    length = inputs.query.shape[-2]
    start, stop, _ = rows.indices(length)
    stop = max(start, stop)
    state = _empty_state(inputs)
    row = torch.arange(start, stop, device=state.device).unsqueeze(-1)
    slope = state.new_zeros(*state.shape[:-2], stop - start, state.shape[-2])
    parts = [slope.new_zeros(*slope.shape[:-1], length - stop)]
    for first in reversed(range(0, stop, _chunk_size(inputs))):
        last = min(first + _chunk_size(inputs), stop)
        part = _slice(inputs, first, last)
        chunk = _Chunk.of(part)
        position = torch.arange(first, last, device=row.device)
        inside = (row == position).to(slope.dtype)  # (rows, C)
        weights = inside @ chunk.products + slope @ chunk.kept.mT
        slope = inside @ chunk.query + slope * chunk.decay.mT
        if part.beta is not None:
            weights = torch.linalg.solve_triangular(
                _correction(part), weights * part.beta.mT, upper=False, left=False
            )
            slope = slope - weights @ chunk.key
        parts.append(weights)
    return torch.cat(parts[::-1], -1)


class _Chunk(NamedTuple):
    """A chunk without its values. With Γ the decay since the chunk began:"""

    query: Tensor  # Γ_t q_t
    key: Tensor  # Γ_t k_t
    products: Tensor  # Σ_d q_td k_sd Γ_td / Γ_sd for s ≤ t, (..., C, C)
    kept: Tensor  # what remains of each key at the chunk's end
    decay: Tensor  # of the state over the whole chunk, (..., 1 or d_k, 1)

    @classmethod
    def of(cls, part: DeltaInputs) -> "_Chunk":
        total = part.log_decay.cumsum(-2)  # log Γ_t, (..., C, 1 or d_k)
        last, decay = total[..., -1:, :], total.exp()
        products = _decayed_products(part.query, part.key, total).tril()
        kept = part.key * (last - total).exp()
        return cls(part.query * decay, part.key * decay, products, kept, last.exp().mT)


def _one_chunk(part: DeltaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    chunk = _Chunk.of(part)
    written = part.value
    if part.beta is not None:
        corrected = torch.linalg.solve_triangular(
            _correction(part), written - chunk.key @ state, upper=False
        )
        written = part.beta * corrected
    output = chunk.query @ state + chunk.products @ written
    return output, chunk.decay * state + chunk.kept.mT @ written


def _chunk_size(inputs: DeltaInputs) -> int:
    return CHUNK_BY_FEATURE if inputs.log_decay.shape[-1] > 1 else CHUNK


def _correction(part: DeltaInputs) -> Tensor:
    """I + A with A_ts = β_s (Γ_t k_t · k_s / Γ_s) for s < t."""
    assert part.beta is not None
    products = _decayed_products(part.key, part.key, part.log_decay.cumsum(-2)) * part.beta.mT
    identity = torch.eye(products.shape[-1], dtype=products.dtype, device=products.device)
    return products.tril(-1) + identity


def _decayed_products(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    """Σ_d left_td right_sd Γ_td / Γ_sd for s ≤ t, (..., C, C); what lies above is meaningless.

    Γ_t / Γ_s ≤ 1 is taken as one exponential: 1 / Γ_s alone could overflow.
    """
    gap = total.unsqueeze(-2) - total.unsqueeze(-3)  # (..., C, C, 1 or d_k), ≤ 0 for s ≤ t
    later = torch.ones(gap.shape[-3:-1], dtype=torch.bool, device=gap.device).triu(1)
    ratio = gap.masked_fill(later.unsqueeze(-1), 0.0).exp()
    if total.shape[-1] == 1:
        return (left @ right.transpose(-1, -2)) * ratio.squeeze(-1)
    return (left.unsqueeze(-2) * right.unsqueeze(-3) * ratio).sum(-1)


def _slice(inputs: DeltaInputs, start: int, stop: int) -> DeltaInputs:
    return DeltaInputs(*(None if x is None else x[..., start:stop, :] for x in inputs))  # type: ignore[arg-type]


def _empty_state(inputs: DeltaInputs) -> Tensor:
    leading = torch.broadcast_shapes(*(x.shape[:-2] for x in inputs if x is not None))
    return inputs.value.new_zeros(*leading, inputs.key.shape[-1], inputs.value.shape[-1])
