"""Lowering: a score rewritten as a dot product, or as w · tanh(q + k), where that is possible.

general = project the queries, then dot; biased general adds its bias to them; cosine = unit
vectors, then dot; location = its positions as keys; additive and concat = project both, then
w · tanh(q + k); under an elementwise function the score inside. Any other score stays as it is.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeGuard

from torch import Tensor, nn

from regard.core.elementwise import Elementwise
from regard.core.request import Request
from regard.core.score import AdditiveForm, DotForm, additive, dot, precise


class SupportsDot(Protocol):
    """A score that can be rewritten as scale · (q' · k')."""

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm: ...


class SupportsAdditive(Protocol):
    """A score that can be rewritten as w · tanh(q' + k')."""

    def as_additive(self, query: Tensor, key: Tensor) -> AdditiveForm: ...


def is_dot(score: object) -> TypeGuard[SupportsDot]:
    """Whether a score can be rewritten as a dot product."""
    return hasattr(score, "as_dot")


def is_additive(score: object) -> TypeGuard[SupportsAdditive]:
    """Whether a score can be rewritten as w · tanh(q + k)."""
    return hasattr(score, "as_additive")


class DotScore:
    """scale · (q · k)"""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return dot(query.to(precise(query.dtype)) * self.scale, key)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        return query, key, self.scale


class TanhScore:
    """w · tanh(q + k)"""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return additive(query, key, self.weight)

    def as_additive(self, query: Tensor, key: Tensor) -> AdditiveForm:
        return query, key, self.weight


def dot_form(request: Request) -> DotForm:
    """Queries, keys and scale of a request whose score can be rewritten as a dot product."""
    score: Any = request.score
    query, key, scale = score.as_dot(request.query, request.key)
    dtype = request.query.dtype
    if query.dtype != dtype or key.dtype != dtype:  # autocast projects to another dtype
        query, key = query.to(dtype), key.to(dtype)
    return query, key, scale


def lower(request: Request) -> Request:
    """The same request with its score in the simplest form."""
    score = request.score
    if is_dot(score):
        query, key, scale = dot_form(request)
        return replace(request, query=query, key=key, score=DotScore(scale))
    if is_additive(score):
        query, key, weight = score.as_additive(request.query, request.key)
        dtype = request.query.dtype
        tanh = TanhScore(weight.to(dtype))
        return replace(request, query=query.to(dtype), key=key.to(dtype), score=tanh)
    if isinstance(score, Elementwise):
        inside = lower(replace(request, score=score.score))
        return replace(inside, score=Elementwise(score.function, inside.score))
    return request


def freeze(request: Request) -> Request:
    """The lowered request with copies of all parameters, still differentiable.

    An optimizer changes parameters in place; a lazy map must not change with them. Lowering may
    return a parameter as well: the keys of a location score are one.
    """
    lowered = lower(request)
    query = request.query if lowered.query is request.query else lowered.query.clone()
    key = request.key if lowered.key is request.key else lowered.key.clone()
    score, normalize = _frozen(lowered.score), _frozen(lowered.normalize)
    return replace(lowered, query=query, key=key, score=score, normalize=normalize)


def _frozen(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    if isinstance(function, TanhScore):
        return TanhScore(function.weight.clone())
    if isinstance(function, Elementwise):
        return Elementwise(_frozen(function.function), _frozen(function.score))
    return copy_module(function, Tensor.clone) if isinstance(function, nn.Module) else function


def copy_module(module: nn.Module, copy_tensor: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the module with copies of its parameters and buffers; itself if it has none."""
    tensors = [*module.parameters(), *module.buffers()]
    copies: dict[int, Any] = {id(tensor): copy_tensor(tensor) for tensor in tensors}
    return copy.deepcopy(module, copies) if copies else module
