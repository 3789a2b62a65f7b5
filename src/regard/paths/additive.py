"""The additive_kernel path: additive attention by the compiled kernels.

tanh(a + b) = 1 − 2 / (1 + e^{2a} · e^{2b}), so the M · N · H transcendental calls of the textbook
become (M + N) · H of them, and no M × N × H tensor exists. With softmax, and a mask whose queries
see whole intervals of keys, one kernel goes from projections to context; for everything else the
kernel computes the scores and the blockwise path does the rest.
"""

from dataclasses import replace

import torch
from torch import Tensor

from regard.core.elementwise import Elementwise
from regard.core.lower import TanhScore, is_additive, lower
from regard.core.normalize import softmax
from regard.core.request import Request
from regard.core.shapes import broadcast
from regard.paths import kernels


class KernelScore:
    """w · tanh(q + k) by the compiled kernel."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        leading = broadcast(query.shape[:-2], key.shape[:-2])
        scores = kernels.additive_scores(flat(query, leading), flat(key, leading), self.weight)
        return scores.view(*leading, *scores.shape[1:])


def with_kernel(request: Request) -> Request:
    """A lowered request whose tanh score, if it has one, is computed by the kernel."""
    score = request.score
    if torch.compiler.is_exporting():
        return request
    if isinstance(score, TanhScore):
        return replace(request, score=KernelScore(score.weight))
    if isinstance(score, Elementwise):
        inside = with_kernel(replace(request, score=score.score))
        return replace(request, score=Elementwise(score.function, inside.score))
    return request


def unsupported_reason(request: Request) -> str | None:
    """Why the kernel cannot compute this request, or None."""
    if not is_additive(request.score):
        return "the score is not w · tanh(q + k)"
    if request.normalize is not softmax:
        return "the kernel normalizes by softmax"
    if request.dropout:
        return "the kernel has no dropout"
    if request.bias is not None:
        return "the kernel adds no bias"
    if request.query.device.type not in ("cpu", "meta"):
        return f"the kernel is for the CPU, not {request.query.device.type}"
    if request.mask is not None and request.mask.key_range(request.grid).full is not True:
        return "the mask is not made of whole intervals of keys"
    return None


def additive(request: Request) -> Tensor:
    """Softmax of w · tanh(q + k) over each query's interval of keys, times V, (..., M, Dv)."""
    request = lower(request)
    assert isinstance(request.score, TanhScore)
    leading = request.leading
    output = kernels.additive_attention(
        flat(request.query, leading),
        flat(request.key, leading),
        request.score.weight,
        flat(request.value, leading),
        *intervals(request),
    )
    return output.view(*leading, *output.shape[1:])


def intervals(request: Request) -> tuple[Tensor | None, Tensor | None]:
    """For each query the keys [low, high) it sees, both (B, M), or None without a mask."""
    if request.mask is None:
        return None, None
    keys = request.mask.key_range(request.grid)
    shape = (*request.leading, request.queries)
    flat_shape = (request.leading.numel(), request.queries)
    return keys.low.expand(shape).reshape(flat_shape), keys.high.expand(shape).reshape(flat_shape)


def flat(tensor: Tensor, leading: torch.Size) -> Tensor:
    """(..., L, D) with all leading dimensions expanded and made one, (B, L, D)."""
    tail = tensor.shape[-2:]
    return tensor.expand(*leading, *tail).reshape(leading.numel(), *tail)
