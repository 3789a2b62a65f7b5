"""Multi-dimensional attention: a score for every feature, not for every pair."""

from functools import partial

import torch
from torch import Tensor

from regard.attention.dispatch import Attended, Computation, dispatch
from regard.core.blocks import by_rows, in_functorch
from regard.core.map import AttentionMap
from regard.core.mask import Mask
from regard.core.normalize import softmax
from regard.core.request import Request, make_request, precise
from regard.core.score import dot
from regard.paths import kernels
from regard.paths.additive import flat, intervals


def attend_features(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    scale: float = 1.0,
    return_map: bool = False,
) -> Tensor | Attended:
    """Attend feature by feature: C_id = Σ_j softmax_j( c · tanh((q_id + k_jd) / c) ) v_jd.

    Shen et al. 2018 (DiSAN), eq. 7 and 15. Each feature of a value has an attention
    distribution of its own; M × N × D numbers never exist at once.

    >>> import torch, regard
    >>> x = torch.randn(2, 5, 8)
    >>> regard.attend_features(x, x, x, mask=regard.causal()).shape
    torch.Size([2, 5, 8])

    Args:
        query: projected queries, (..., M, D)
        key: projected keys, (..., N, D)
        value: (..., N, D)
        mask: a Mask, or a bool tensor with True = may attend
        scale: c, the bound of the scores; the paper takes 5
        return_map: also return the lazy map, (..., D, M, N): features stand like heads

    Returns: the context (..., M, D), or `Attended(output, map)`
    """
    if not scale > 0:
        raise ValueError(f"scale must be above 0, got {scale}")
    widths = [t.shape[-1] for t in (query, key, value) if t.dim()]
    if len(set(widths)) > 1:
        raise ValueError(
            f"a score per feature needs query, key and value of one width, got {widths}; project "
            "them to the same width first"
        )
    request = make_request(query, key, value, score=dot, mask=mask)
    how = Computation(
        "features",
        partial(_compute, scale=scale),
        partial(_map, scale=scale),
        _combine,
        features=value.shape[-1],
    )
    return dispatch(request, how, return_map=return_map)


def _compute(request: Request, scale: float) -> Tensor:
    compute = _by_kernel if _whole_intervals(request) else _by_rows
    return compute(request, scale)


def _whole_intervals(request: Request) -> bool:
    """Whether the kernel can take the mask: intervals of keys for each query."""
    if in_functorch():
        return False
    return request.mask is None or request.mask.key_range(request.grid).full is True


def _by_kernel(request: Request, scale: float) -> Tensor:
    leading = request.leading
    output = kernels.feature_attention(
        flat(request.query, leading),
        flat(request.key, leading),
        flat(request.value, leading),
        scale,
        *intervals(request),
    )
    return output.view(*leading, *output.shape[1:])


def _by_rows(request: Request, scale: float) -> Tensor:
    """Blocks of queries, for any mask."""

    def rows(query: Tensor, where: slice) -> Tensor:
        weights = _weights(request, scale, query, where)  # (..., D, rows, N)
        return _combine(request, weights, where).to(request.value.dtype)

    elements = request.leading.numel() * request.keys * request.value.shape[-1]
    return by_rows(rows, request.query, elements=elements)


def _combine(request: Request, weights: Tensor, _: slice) -> Tensor:
    """Weights (..., D, rows, N) times values, feature by feature, (..., rows, D)."""
    value = request.value.to(weights.dtype).transpose(-1, -2).unsqueeze(-1)  # (..., D, N, 1)
    return (weights @ value).squeeze(-1).transpose(-1, -2)


def _scores(request: Request, scale: float, query: Tensor) -> Tensor:
    """c · tanh((q + k) / c) for some rows, (..., D, rows, N)."""
    dtype = precise(query.dtype)
    q = query.to(dtype).transpose(-1, -2).unsqueeze(-1)
    k = request.key.to(dtype).transpose(-1, -2).unsqueeze(-2)
    return scale * torch.tanh((q + k) / scale)


def _weights(request: Request, scale: float, query: Tensor, rows: slice) -> Tensor:
    mask = request.visible(rows)
    return softmax(_scores(request, scale, query), None if mask is None else mask.unsqueeze(-3))


def _map(request: Request, scale: float) -> AttentionMap:
    width = request.value.shape[-1]

    def scores(rows: slice) -> Tensor:
        return _scores(request, scale, request.query[..., rows, :])

    def weights(rows: slice) -> Tensor:
        found = _weights(request, scale, request.query[..., rows, :], rows)
        return found.to(request.value.dtype)

    return request.lazy_map(weights, scores, features=(width,))
