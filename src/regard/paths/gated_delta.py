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
    by_feature = inputs.log_decay.shape[-1] > 1
    size = CHUNK_BY_FEATURE if by_feature else CHUNK
    length = inputs.query.shape[-2]
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


def implied_map(inputs: DeltaInputs) -> Tensor:
    """The map W (..., N, N) with o = W v, for an empty state: its entries may be negative."""
    weights = _decayed_products(inputs.query, inputs.key, inputs.log_decay.cumsum(-2)).tril()
    if inputs.beta is None:
        return weights
    system, beta = _correction(inputs)
    # o = P β u and (I + A) u = v, so W = P β (I + A)⁻¹
    return torch.linalg.solve_triangular(system, weights * beta, upper=False, left=False)


def _one_chunk(part: DeltaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    total = part.log_decay.cumsum(-2)  # log Γ_t, (..., C, 1 or d_k)
    query, key = part.query * total.exp(), part.key * total.exp()
    written = part.value
    products = _decayed_products(part.query, part.key, total).tril()
    if part.beta is not None:
        system, _ = _correction(part)
        corrected = torch.linalg.solve_triangular(system, written - key @ state, upper=False)
        written = part.beta * corrected
    output = query @ state + products @ written
    last = total[..., -1:, :]
    kept = part.key * (last - total).exp()  # what remains of each key at the chunk's end
    state = last.exp().transpose(-1, -2) * state + kept.transpose(-1, -2) @ written
    return output, state


def _correction(part: DeltaInputs) -> tuple[Tensor, Tensor]:
    """I + A with A_ts = β_s (Γ_t k_t · k_s / Γ_s) for s < t, and β as a row."""
    assert part.beta is not None
    beta = part.beta.transpose(-1, -2)  # (..., 1, C)
    products = _decayed_products(part.key, part.key, part.log_decay.cumsum(-2)) * beta
    size = products.shape[-1]
    identity = torch.eye(size, dtype=products.dtype, device=products.device)
    return products.tril(-1) + identity, beta


def _decayed_products(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    """Σ_d left_td right_sd Γ_td / Γ_sd for s ≤ t, (..., C, C); what lies above is meaningless.

    Γ_t / Γ_s ≤ 1 is taken as one exponential: 1 / Γ_s alone could overflow.
    """
    gap = total.unsqueeze(-2) - total.unsqueeze(-3)  # (..., C, C, 1 or d_k), ≤ 0 for s ≤ t
    ratio = gap.clamp(max=0.0).exp()
    if total.shape[-1] == 1:
        return (left @ right.transpose(-1, -2)) * ratio.squeeze(-1)
    return (left.unsqueeze(-2) * right.unsqueeze(-3) * ratio).sum(-1)


def _slice(inputs: DeltaInputs, start: int, stop: int) -> DeltaInputs:
    return DeltaInputs(*(None if x is None else x[..., start:stop, :] for x in inputs))  # type: ignore[arg-type]


def _empty_state(inputs: DeltaInputs) -> Tensor:
    leading = torch.broadcast_shapes(*(x.shape[:-2] for x in inputs if x is not None))
    return inputs.value.new_zeros(*leading, inputs.key.shape[-1], inputs.value.shape[-1])
