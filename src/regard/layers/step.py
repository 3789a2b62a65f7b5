"""One step of dot-product attention: one or a few queries, by two matrix products.

A step computes so little that choosing a path would take longer than the path.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.attention.dispatch import Attended, Computation, dispatch, weigh
from regard.core.map import AttentionMap
from regard.core.mask import as_mask
from regard.core.request import Request, make_request

TINY = 400
"""Below so many products torch multiplies two matrices of a batch by a slow loop."""


def can_step(query: Tensor, key: Tensor) -> bool:
    """Whether `attend_step` can compute this: it has no gradient."""
    return query.dtype in (torch.float32, torch.float64) and not (
        torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    )


def attend_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    shade: Tensor | None = None,
    bias: Tensor | None = None,
    change: Callable[[Tensor], Tensor] = lambda x: x,
    return_map: bool = False,
) -> tuple[Tensor, AttentionMap | None]:
    """softmax(q kᵀ / √d + bias + shade) v, and its map.

    >>> q, k, v = torch.randn(2, 3, 1, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    >>> output, map = attend_step(q, k, v, return_map=True)
    >>> torch.allclose(map.dense() @ v, output, atol=1e-6)
    True

    Args:
        query: (batch, heads, M, width)
        key, value: (batch, heads, N, width); if they have fewer heads, groups of heads share one
        shade: 0 for visible keys, -inf for hidden ones, (batch or 1, heads or 1, 1, N); every
            query has a visible key
        bias: added to the scores, (heads or 1, M, N)
        change: applied to the output and to rows of the map
    """
    batch, shared, N, width = key.shape
    rows = query.shape[1] // shared * query.shape[2]  # heads that share keys are queries of one
    found: list[Tensor] = []  # scores and weights

    def compute(_: Request) -> Tensor:
        q = (query * width**-0.5).reshape(batch * shared, rows, width)
        scores = torch.bmm(q, key.flatten(0, 1).mT).view(*query.shape[:3], N)
        if bias is not None:
            scores = scores + bias
        weights = _softmax(scores if shade is None else scores + shade)
        found.extend((scores, weights))
        return _weigh(weights.view(batch * shared, rows, N), value.flatten(0, 1)).view(query.shape)

    def request() -> Request:
        group = query.shape[1] // shared
        return make_request(
            query,
            key.repeat_interleave(group, 1) if group > 1 else key,
            value.repeat_interleave(group, 1) if group > 1 else value,
            score="scaled_dot",
            mask=None if shade is None else as_mask(shade == 0),
            bias=bias,
        )

    def map_of_step(_: Request) -> AttentionMap:
        scores, weights = found
        return AttentionMap.of(weights, scores)

    how = Computation("step", compute, map_of_step, weigh, weights=lambda: found[1])
    attended = dispatch(request, how, inputs=(query, key, value), return_map=return_map)
    if not isinstance(attended, Attended):
        return change(attended), None
    map = attended.map
    shape = change(attended.output[..., :0]).shape
    changed = AttentionMap(
        lambda rows: change(map.dense())[..., rows, :],
        lambda rows: change(map.scores.dense())[..., rows, :],
        (*shape[:-1], N),
    )
    return change(attended.output), changed


def _softmax(scores: Tensor) -> Tensor:
    """Over the last dimension; torch's own takes three times as long for rows this short."""
    if scores.shape[-1] == 0:
        return scores
    weights = (scores - scores.amax(-1, keepdim=True)).exp_()
    return weights.div_(weights.sum(-1, keepdim=True))


def _weigh(weights: Tensor, value: Tensor) -> Tensor:
    """weights (batch, M, N) @ value (batch, N, width)"""
    if weights.shape[1] == 1 and value.shape[1] * value.shape[2] < TINY:
        return (weights.mT * value).sum(1, keepdim=True)
    return torch.bmm(weights, value)
