"""Lowering: a score that is a simpler one in disguise, rewritten as that.

general = project the queries, then dot; biased general folds its bias into them; cosine = unit
vectors, then dot; location = its positions as keys; additive and concat = project both, then
w · tanh(q + k). What has no simpler form stays as it is.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.request import Request
from regard.core.score import Score, additive, dot, precise


class DotScore:
    """scale · (q · k)"""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return dot(query.to(precise(query.dtype)) * self.scale, key)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """The form that fast paths take."""
        return query, key, self.scale


class TanhScore:
    """w · tanh(q + k)"""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return additive(query, key, self.weight)


def is_dot(score: Any) -> bool:
    """Whether a score is a dot product in disguise."""
    return hasattr(score, "as_dot")


def is_additive(score: Any) -> bool:
    """Whether a score is w · tanh(q + k) in disguise."""
    return hasattr(score, "as_additive")


def lower(request: Request) -> Request:
    """The same request with its score in the simplest form."""
    score: Any = request.score
    if is_dot(score):
        query, key, scale = score.as_dot(request.query, request.key)
        return replace(request, query=query, key=key, score=DotScore(scale))
    if is_additive(score):
        query, key, weight = score.as_additive(request.query, request.key)
        return replace(request, query=query, key=key, score=TanhScore(weight))
    return request


def freeze(request: Request) -> Request:
    """The lowered request with the score's parameters as they are now, still differentiable.

    An optimizer changes parameters in place; a lazy map must not change with them. What lowering
    made may be a parameter too: the keys of a location score are.
    """
    lowered = lower(request)
    query = request.query if lowered.query is request.query else lowered.query.clone()
    key = request.key if lowered.key is request.key else lowered.key.clone()
    return replace(lowered, query=query, key=key, score=_frozen(lowered.score))


def _frozen(score: Score) -> Score:
    if isinstance(score, TanhScore):
        return TanhScore(score.weight.clone())
    if not isinstance(score, nn.Module):
        return score
    held = {name: tensor.clone() for name, tensor in score.named_parameters()}
    held |= {name: tensor.clone() for name, tensor in score.named_buffers()}

    def frozen(query: Tensor, key: Tensor) -> Tensor:
        return torch.func.functional_call(score, held, (query, key))

    return frozen if held else score
