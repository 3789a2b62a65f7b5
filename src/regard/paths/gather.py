"""The gather path: hard attention at inference fetches the one value that was chosen.

It makes no weights: each query finds its best key, block by block, and takes that key's value. It
costs the scores and one row of V per query; a map of ones and zeros would cost M · N · Dv.
"""

import math

import torch
from torch import Tensor

from regard.core.blocks import by_rows
from regard.core.lower import lower
from regard.core.normalize import hard
from regard.core.request import Request
from regard.core.score import SCORES
from regard.paths.additive import with_kernel
from regard.paths.blockwise import row_elements


def unsupported_reason(request: Request) -> str | None:
    """Why values cannot be gathered for this request, or None."""
    if request.normalize is not hard:
        return "the normalizer is not hard"
    if request.dropout:
        return "dropout scales the weights"
    if torch.is_grad_enabled() and _may_need_gradient(request):
        return "a gradient may be needed, which goes through the softmax"
    return None


def gather(request: Request) -> Tensor:
    """The value of each query's best visible key, (..., M, Dv)."""
    request = with_kernel(lower(request))
    leading, keys = request.leading, request.keys
    value = request.value.expand(*leading, keys, request.value.shape[-1])

    def block(query: Tensor, bias: Tensor | None, rows: slice) -> Tensor:
        scores = request.scores(query, bias)
        mask = request.visible(rows)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        best = scores.argmax(dim=-1, keepdim=True).expand(*leading, query.shape[-2], 1)
        chosen = value.gather(-2, best.expand(*best.shape[:-1], value.shape[-1]))
        if mask is None:
            return chosen
        return chosen.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)

    if keys == 0:
        return value.new_zeros(*leading, request.queries, value.shape[-1])
    return by_rows(block, request.query, request.bias, elements=row_elements(request))


def _may_need_gradient(request: Request) -> bool:
    """Whether the scores may need a gradient; a callable may hide parameters that do."""
    plain = any(request.score is score for score in SCORES.values())
    return not plain or any(tensor.requires_grad for _, tensor in request.tensors())
