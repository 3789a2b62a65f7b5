"""`attend` and `explain`: choose a path, nothing else."""

from collections.abc import Callable
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from regard.attention import observer
from regard.core.lower import freeze
from regard.core.map import AttentionMap
from regard.core.mask import Grid, Mask, as_mask
from regard.core.names import find_normalizer, find_score
from regard.core.process import limit_threads_after_fork
from regard.core.request import Request, make_request, masked_leading
from regard.core.score import Score, precise
from regard.paths import fused
from regard.paths.additive import with_kernel
from regard.paths.choice import PATHS, Plan, choose, plan

Normalize = str | Callable[..., Tensor]


class Attended(NamedTuple):
    """What attention gives: the context, and the map it was made with."""

    output: Tensor
    map: AttentionMap


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

    Args:
        query: (..., M, Dq)
        key: (..., N, Dk)
        value: (..., N, Dv)
        score: a name ("dot", "scaled_dot", "cosine"), a score module, or any callable
            (query, key) -> (..., M, N) that treats query rows independently
        mask: a Mask, or a bool tensor with True = may attend
        bias: float (..., M, N), added to the scores, differentiable; -inf hides like a mask
        normalize: "softmax", "sparsemax", "entmax15", "hard", "gumbel", or a callable
            (scores, mask) -> weights
        dropout: of the weights; a function has no train mode, so pass 0 to evaluate
        path: "auto", or the name of a path, which then runs or raises
        return_map: also return the map, lazily

    Returns: the context (..., M, Dv), or `Attended(output, map)`. A query that may see nothing
        gives zeros.

    Raises:
        TypeError, ValueError: with what was expected, what came, and what to do
    """
    limit_threads_after_fork()
    told = observer.observers() if observer.observing else ()
    plain = bias is None and not dropout and not return_map and path == "auto"
    if plain and score == "scaled_dot" and normalize == "softmax" and not observer.any_edits(told):
        if told:
            with observer.unobserved():
                output = fused.direct(query, key, value, mask)
        else:
            output = fused.direct(query, key, value, mask)
        if output is not None:
            if told:
                request = _plain_request(query, key, value, mask)
                observer.notify_request(told, request, output, "fused", map_of)
            return output
    request = _request(query, key, value, score, mask, bias, normalize, dropout)
    request = observer.edit_request(told, request).seeded() if told else request.seeded()
    name, _ = choose(request, path)
    if told:
        with observer.unobserved():
            output = PATHS[name](request)
        observer.notify_request(told, request, output, name, map_of)
    else:
        output = PATHS[name](request)
    return Attended(output, map_of(request)) if return_map else output


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
    return_map: bool = False,
) -> Plan:
    """Tell which path `attend` takes for the same arguments, why, and about what it costs.

    >>> import torch, regard
    >>> q = torch.randn(8, 256, 64)
    >>> regard.explain(q, q, q, dropout=0.1).path
    'blockwise'
    """
    return plan(_request(query, key, value, score, mask, bias, normalize, dropout), path)


def attention_weight(
    scores: Tensor, mask: Mask | Tensor | None = None, *, normalize: Normalize = "softmax"
) -> Tensor:
    """The first textbook half of attention: scores → map. `weighted_sum` is the second.

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


def _request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: str | Score,
    mask: Mask | Tensor | None,
    bias: Tensor | None,
    normalize: Normalize,
    dropout: float,
) -> Request:
    return make_request(
        query,
        key,
        value,
        score=find_score(score),
        mask=mask,
        bias=bias,
        normalize=find_normalizer(normalize),
        dropout=dropout,
    )


def _plain_request(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None
) -> Request:
    """The request of a plain call, whose tensors were found to fit already."""
    seen = None if mask is None else as_mask(mask)
    how = (find_score("scaled_dot"), seen, None, find_normalizer("softmax"), 0.0, None)
    return Request(query, key, value, *how, query.shape[:-2])


def map_of(request: Request) -> AttentionMap:
    """The lazy map of a request: with the noise, mask and parameters that made the output."""
    held = with_kernel(freeze(request.zero_hidden()))
    watched = [(name, t, t._version) for name, t in request.tensors() if _is_counted(t)]

    def scores(rows: slice) -> Tensor:
        for name, tensor, version in watched:
            if tensor._version != version:
                raise RuntimeError(
                    f"{name} was changed in place after attend(), so its map is gone; read the "
                    "map before that, or give attend() a clone"
                )
        bias = None if held.bias is None else held.bias[..., rows, :]
        return held.scores(held.query[..., rows, :], bias)

    def weights(rows: slice) -> Tensor:
        return held.weights(scores(rows), rows).to(request.value.dtype)

    return AttentionMap(weights, scores, (*request.leading, request.queries, request.keys))


def _is_counted(tensor: Tensor) -> bool:
    """Whether torch counts the changes to a tensor; a compiler cannot tell."""
    return not torch.compiler.is_compiling() and not tensor.is_inference()
