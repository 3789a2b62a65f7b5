"""`attend` and `explain`: make a request, and compute it or return the plan for it."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, overload

import torch
from torch import Tensor

from regard.attention import observer
from regard.attention.dispatch import (
    Attended,
    Computation,
    by_path,
    dispatch,
    map_of,
    weigh,
)
from regard.attention.jagged import is_jagged, pack
from regard.core.blocks import can_inspect_values
from regard.core.lower import is_additive, is_dot
from regard.core.mask import Grid, Mask, Window, as_mask
from regard.core.normalize import find_normalizer
from regard.core.request import make_request, masked_leading
from regard.core.score import Score, precise
from regard.paths import choice, fused
from regard.paths.choice import Plan, choose, plan
from regard.paths.tile_attention import attend_tidy
from regard.system.process import limit_threads_after_fork

Normalize = str | Callable[..., Tensor]


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score = ...,
    mask: Mask | Tensor | None = ...,
    bias: Tensor | None = ...,
    normalize: Normalize = ...,
    dropout: float = ...,
    path: str = ...,
    return_map: Literal[False] = ...,
) -> Tensor: ...


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score = ...,
    mask: Mask | Tensor | None = ...,
    bias: Tensor | None = ...,
    normalize: Normalize = ...,
    dropout: float = ...,
    path: str = ...,
    return_map: Literal[True],
) -> Attended: ...


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score = ...,
    mask: Mask | Tensor | None = ...,
    bias: Tensor | None = ...,
    normalize: Normalize = ...,
    dropout: float = ...,
    path: str = ...,
    return_map: bool,
) -> Tensor | Attended: ...


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score = "scaled_dot",
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    normalize: Normalize = "softmax",
    dropout: float = 0.0,
    path: str = "auto",
    return_map: bool = False,
) -> Tensor | Attended:
    """Attend: normalize[ score(Q, K) + bias, mask ] · V.

    >>> import torch, regard
    >>> q, k, v = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 7)
    >>> regard.attend(q, k, v, mask=regard.lengths(torch.tensor([5, 0]))).shape
    torch.Size([2, 3, 7])
    >>> output, map = regard.attend(q, k, v, return_map=True)
    >>> map[..., 0, :].shape
    torch.Size([2, 5])

    Jagged nested tensors (batch, lengths, D) or (batch, heads, lengths, D) give one; padding is
    not computed. Their map is that of the sequences side by side, (..., sum of lengths, ...).

    Args:
        query: (..., M, Dq)
        key: (..., N, Dk)
        value: (..., N, Dv)
        score: a name ("dot", "scaled_dot", "cosine"), a score module, or any callable
            (query, key) -> (..., M, N) that treats query rows independently
        mask: a Mask, a bool tensor with True = may attend, or a mask_mod(b, h, q, kv) or BlockMask
            of torch's flex_attention
        bias: float (..., M, N), added to the scores, differentiable; -inf hides like a mask
        normalize: "softmax", "sparsemax", "entmax15", "hard", "gumbel", "sigmoid", "sink", a
            `Normalizer` (temperature, top_k, sink), or a callable (scores, mask) -> weights
        dropout: of the weights; a function has no train mode, so pass 0 to evaluate
        path: "auto", or the name of a path, which then runs or raises
        return_map: also return the map, lazily; in inference mode it has copies of the inputs

    Returns: the context (..., M, Dv), or `Attended(output, map)`. A query that may see nothing
        gives zeros.

    Raises:
        TypeError, ValueError: with what was expected, what was given, and how to fix it
    """
    if is_jagged(query, key, value):
        if bias is not None:
            raise ValueError("jagged tensors take no bias=; add it in a score of your own")
        batch = pack(query, key, value, mask)
        attended = attend(
            *batch[:3], score=score, mask=batch.mask, normalize=normalize, dropout=dropout,
            path=path, return_map=return_map,
        )  # fmt: skip
        if isinstance(attended, Attended):
            return Attended(batch.nested(attended.output), attended.map)
        return batch.nested(attended)
    signature = None
    if bias is None and not dropout and not return_map and path == "auto":
        signature = _signature(query, key, value, score, normalize, mask)
        if signature is not None and _fused.get(signature):
            tiles = fused.whole_tile(mask, query, key)
            scale = 1.0 / math.sqrt(query.shape[-1])
            if tiles is not None and not observer.observing:
                limit_threads_after_fork()
                return attend_tidy(query, key, value, tiles, scale)
            is_plain = tiles is fused.WHOLE or tiles is fused.CAUSAL
            if tiles is not None and is_plain and not _needs_gradient(query, key, value):
                return dispatch(
                    lambda: make_request(query, key, value, score="scaled_dot", mask=mask),
                    Computation(
                        "fused",
                        lambda _: attend_tidy(query, key, value, tiles, scale),
                        map_of,
                        weigh,
                    ),
                    inputs=(query, key, value),
                )
    request = make_request(
        query, key, value, score=score, mask=mask, bias=bias, normalize=normalize, dropout=dropout
    )
    if signature is not None and signature not in _fused:
        if len(_fused) >= REMEMBERED:
            _fused.clear()
        _fused[signature] = fused.depends_on_shapes(request) and choose(request)[0] == "fused"
    computation = by_path if path == "auto" else partial(by_path, path=path)
    return dispatch(request, computation, return_map=return_map)


REMEMBERED = 1024
_fused: dict[tuple[object, ...], bool] = {}
"""Whether `choose` gives plain and masked calls of some shapes and dtypes to the fused path.

Making a request takes a noticeable part of a small call; the next call of these shapes needs none.
"""


def _signature(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: str | Score,
    normalize: Normalize,
    mask: Mask | Tensor | None,
) -> tuple[object, ...] | None:
    """Shapes, dtypes and device, which decide on a plain or masked call; None if it is another."""
    if score != "scaled_dot" or normalize != "softmax":
        return None
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        return None
    q, k = query.shape, key.shape
    kind = None
    if mask is not None:
        if len(q) != 4 or len(k) != 4:
            return None
        square = isinstance(mask, Window) and mask.square_causal(q[2], k[2])
        kind = "causal" if square else "mask"
    if not can_inspect_values(query):  # sizes may be symbolic
        return None
    kinds = [(tensor.dtype, tensor.device) for tensor in (query, key, value)]
    return q, k, value.shape, *kinds, kind, choice.TINY


def _needs_gradient(*tensors: Tensor) -> bool:
    """Whether a call has a gradient: a record of it would keep the graph of its inputs alive."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score = "scaled_dot",
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    normalize: Normalize = "softmax",
    dropout: float = 0.0,
    path: str = "auto",
) -> Plan:
    """Return the path that `attend` takes for the same arguments, the reason and the cost.

    >>> import torch, regard
    >>> q = torch.randn(8, 256, 64)
    >>> regard.explain(q, q, q, dropout=0.1).path
    'blockwise'
    """
    request = make_request(
        query, key, value, score=score, mask=mask, bias=bias, normalize=normalize, dropout=dropout
    )
    checks_widths = is_dot(request.score) or is_additive(request.score)
    if checks_widths:  # as attend does
        one, other = (t.narrow(-2, 0, min(1, t.shape[-2])) for t in (request.query, request.key))
        with torch.no_grad():
            request.score(one, other)
    return plan(request, path)


def attention_weight(
    scores: Tensor, mask: Mask | Tensor | None = None, *, normalize: Normalize = "softmax"
) -> Tensor:
    """The first half of attention in textbooks: scores → map. `weighted_sum` is the second.

    >>> import torch
    >>> attention_weight(torch.zeros(1, 4), torch.tensor([True, True, False, False]))
    tensor([[0.5000, 0.5000, 0.0000, 0.0000]])

    Args:
        scores: (..., M, N)
        mask: a Mask, or a bool tensor with True = may attend
    """
    if scores.dim() < 2:
        raise ValueError(f"scores should be (..., M, N), got shape {tuple(scores.shape)}")
    visible = None
    if mask is not None:
        mask = as_mask(mask)
        *_, queries, keys = scores.shape
        leading = masked_leading(mask, scores.shape[:-2], queries, keys, scores.device)
        grid = Grid(queries, keys, len(leading), scores.device)
        visible = mask.block(slice(0, queries), slice(0, keys), grid)
    weights = find_normalizer(normalize)(scores.to(precise(scores.dtype)), visible)
    return weights.to(scores.dtype)
