"""Linear attention: efficient attention, and recurrences whose state decays and is corrected."""

from functools import partial

import torch
from torch import Tensor

from regard.attention.dispatch import Attended, Computation, dispatch, weigh
from regard.core.map import AttentionMap
from regard.core.mask import Mask
from regard.core.request import Request, check_devices, make_request
from regard.core.score import dot, precise
from regard.paths.gated_delta import DeltaInputs, chunked, implied_rows
from regard.paths.linear import linear, linear_rows


def attend_linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    causal: bool = False,
    log_decay: Tensor | float | None = None,
    beta: Tensor | None = None,
    return_map: bool = False,
) -> Tensor | Attended:
    """Attend in linear time and memory: C = ρ(Q) (ρ(K)ᵀ V). Shen et al. 2018, eq. 4.

    ρ(Q) is the softmax over the features of each query, ρ(K) the softmax over the positions of
    each key feature. The n × n map becomes a d_k × d_v context; with `causal` it runs along.

    With `log_decay` or `beta` it is the gated delta recurrence instead, on queries and keys as they
    are: S_t = (I − β_t k_t k_tᵀ) diag(α_t) S_{t−1} + β_t k_t v_tᵀ, o_t = S_tᵀ q_t. Retention and
    gated linear attention have a decay alone, DeltaNet has β alone (see `paths/gated_delta.py`).

    >>> import torch, regard
    >>> x = torch.randn(2, 1000, 8)
    >>> regard.attend_linear(x, x, x, causal=True).shape
    torch.Size([2, 1000, 8])
    >>> regard.attend_linear(x, x, x, causal=True, log_decay=-0.1).shape  # retention
    torch.Size([2, 1000, 8])

    Args:
        query: (..., M, D)
        key: (..., N, D)
        value: (..., N, Dv)
        mask: which keys are real, for all queries alike: `lengths(keys)`, or a bool tensor
            (..., 1, N)
        causal: no query sees a later key; the last query sits on the last key
        log_decay: log α ≤ 0, a number, or (..., N, 1), or (..., N, D) for every feature; needs
            `causal` and as many queries as keys
        beta: how much of the old value of a key is replaced, (..., N, 1); needs the same
        return_map: also return the map that this implies, lazily; its rows sum to one, but for
            the recurrence, whose weights may be negative

    Returns: the context (..., M, Dv), or `Attended(output, map)`
    """
    if query.dim() and key.dim() and not query.shape[-1] == key.shape[-1] > 0:
        raise ValueError(
            f"query and key must have the same width, of 1 or more, got query {tuple(query.shape)} "
            f"and key {tuple(key.shape)}"
        )
    request = make_request(query, key, value, score=dot, mask=mask)
    computation = partial(_computation, causal=causal)
    if log_decay is not None or beta is not None:
        if not causal or request.queries != request.keys:
            raise ValueError(
                "log_decay and beta are of a recurrence along the sequence: it needs causal=True "
                f"and as many queries as keys, got causal={causal}, {request.queries} queries and "
                f"{request.keys} keys"
            )
        computation = partial(_recurrence, log_decay=log_decay, beta=beta)
    return dispatch(request, computation, return_map=return_map)


def _visible_keys(request: Request) -> Tensor | None:
    """Which keys are real, bool (..., N), or None for all."""
    if request.mask is None:
        return None
    if not request.mask.ignores_queries():
        raise ValueError(
            f"linear attention cannot hide keys from one query and not another, as "
            f"{request.mask} does; hide keys with lengths(keys), later ones with causal=True"
        )
    return request.mask.block(slice(0, 1), slice(0, request.keys), request.grid)[..., 0, :]


def _recurrence(
    request: Request, log_decay: Tensor | float | None, beta: Tensor | None
) -> Computation:
    dtype = precise(request.query.dtype)
    log_decay = 0.0 if log_decay is None else log_decay
    gates = {"log_decay": log_decay, "beta": beta}
    check_devices(request.query.device, **{n: t for n, t in gates.items() if isinstance(t, Tensor)})
    log_decay = torch.as_tensor(log_decay, dtype=dtype, device=request.query.device)
    if not log_decay.dim():
        log_decay = log_decay.expand(request.keys, 1)
    _check_gate("log_decay", log_decay, request, (1, request.key.shape[-1]))
    if beta is not None:
        _check_gate("beta", beta, request, (1,))
        beta = beta.to(dtype)

    def inputs(request: Request) -> DeltaInputs:
        query, key, value = (x.to(dtype) for x in (request.query, request.key, request.value))
        decay, visible = log_decay, _visible_keys(request)
        if visible is not None:  # a hidden key writes nothing, and time stands still
            visible = visible.unsqueeze(-1)
            key, value, decay = (torch.where(visible, x, 0.0) for x in (key, value, decay))
        return DeltaInputs(query, key, value, decay, beta)

    def compute(request: Request) -> Tensor:
        return chunked(inputs(request))[0].to(request.value.dtype)

    def map(request: Request) -> AttentionMap:
        def rows(which: slice) -> Tensor:
            return implied_rows(inputs(request), which).to(request.value.dtype)

        return request.lazy_map(rows)

    return Computation("gated_delta", compute, map, weigh)


def _check_gate(name: str, gate: Tensor, request: Request, widths: tuple[int, ...]) -> None:
    shape = (*request.leading, request.keys)
    if gate.dim() < 2 or gate.shape[-2] != request.keys or gate.shape[-1] not in widths:
        expected = " or ".join(f"(..., {request.keys}, {width})" for width in dict.fromkeys(widths))
        raise ValueError(
            f"{name} should be {expected} for keys {tuple(request.key.shape)}, got "
            f"{tuple(gate.shape)}"
        )
    try:
        fits = torch.broadcast_shapes(gate.shape[:-1], shape) == torch.Size(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"{name} {tuple(gate.shape)} does not broadcast to {shape}")


def _computation(request: Request, causal: bool) -> Computation:
    visible = _visible_keys(request)

    def compute(request: Request) -> Tensor:
        return linear(request.query, request.key, request.value, visible=visible, causal=causal)

    def map(request: Request) -> AttentionMap:
        def rows(which: slice) -> Tensor:
            return linear_rows(request.query, request.key, which, visible=visible, causal=causal)

        return request.lazy_map(rows)

    return Computation("linear", compute, map, weigh, zeroes_hidden=True)
