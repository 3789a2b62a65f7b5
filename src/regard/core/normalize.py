"""Normalizers: from a row of scores to an attention distribution.

A normalizer is any callable `(scores, mask) -> weights` with scores (..., M, N) and a boolean
mask that broadcasts to it (True = may attend) or None. Those here give hidden keys exactly
zero and a query that sees nothing a row of zeros, with finite gradients.

To add one: write the function here and put it into `NORMALIZERS`. See ARCHITECTURE.md.
"""

import math
from collections.abc import Callable
from typing import Protocol, TypeGuard

import torch
from torch import Tensor

from regard.core.blocks import can_inspect_values


def softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """e^s over its sum: every visible key gets something.

    >>> softmax(torch.zeros(4), torch.tensor([True, True, False, False]))
    tensor([0.5000, 0.5000, 0.0000, 0.0000])
    """
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if can_inspect_values(mask) and bool(mask.any(dim=-1).all()):  # then e^-inf is 0
        return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    return torch.softmax(_hide(scores, mask, -math.inf), dim=-1).masked_fill(~mask, 0.0)


def sparsemax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The nearest point of the simplex: p = max(s − τ, 0). Martins & Astudillo 2016, eq. 2-3.

    >>> sparsemax(torch.tensor([1.0, 0.8, -1.0]))
    tensor([0.6000, 0.4000, 0.0000])
    """
    z = _shifted(scores, mask)
    with torch.no_grad():  # which keys are in the support; τ is then a function of z
        ordered = z.sort(dim=-1, descending=True).values
        rank = _ranks(z)
        size = (1 + rank * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
        support = ~(z < _nth(ordered, size))  # NaN stays in, and shows
    size = support.sum(-1, keepdim=True)
    tau = (z.masked_fill(~support, 0.0).sum(-1, keepdim=True) - 1) / size
    return _only(z - tau, support, mask)


def entmax15(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """1.5-entmax, between softmax and sparsemax: p = max(s/2 − τ, 0)². Peters et al. 2019, eq. 10.

    >>> entmax15(torch.tensor([1.0, 0.8, -3.0]))
    tensor([0.5705, 0.4295, 0.0000])
    """
    z = _shifted(scores / 2, mask)
    with torch.no_grad():
        ordered = z.sort(dim=-1, descending=True).values
        rank = _ranks(z)
        mean = ordered.cumsum(-1) / rank
        spread = ordered.square().cumsum(-1) - rank * mean.square()
        tau = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
        size = (tau <= ordered).sum(-1, keepdim=True)
        support = ~(z < _nth(ordered, size))  # NaN stays in, and shows
    size = support.sum(-1, keepdim=True)
    mean = z.masked_fill(~support, 0.0).sum(-1, keepdim=True) / size
    spread = (z - mean).masked_fill(~support, 0.0).square().sum(-1, keepdim=True)
    tau = mean - ((1 - spread) / size).clamp(min=torch.finfo(z.dtype).tiny).sqrt()
    return _only(z - tau, support, mask).square()


def hard(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """All weight on the best visible key, the first of several. The gradient is softmax's.

    The straight-through estimator of Bengio et al. 2013, section 4.

    >>> hard(torch.tensor([1.0, 3.0, 3.0]))
    tensor([0., 1., 0.])
    """
    soft = softmax(scores, mask)
    seen = scores.detach() if mask is None else scores.detach().masked_fill(~mask, -math.inf)
    chosen = torch.zeros_like(soft)
    if soft.shape[-1]:
        chosen = chosen.scatter(-1, seen.argmax(dim=-1, keepdim=True), 1.0)
    if mask is not None:
        chosen = chosen.masked_fill(~mask, 0.0)
    return chosen + (soft - soft.detach())


class NoisyNormalizer(Protocol):
    """A normalizer that also takes uniform noise in (0, 1), which `attend` draws by position."""

    needs_noise: bool

    def __call__(
        self, scores: Tensor, mask: Tensor | None = None, uniform: Tensor | None = None
    ) -> Tensor: ...


def needs_noise(normalize: Callable[..., Tensor]) -> TypeGuard[NoisyNormalizer]:
    """Whether a normalizer takes noise."""
    return bool(getattr(normalize, "needs_noise", False))


class Gumbel:
    """Softmax of the scores plus Gumbel noise, over a temperature: a relaxed sample.

    softmax((s + g) / τ) with g = −log(−log u). The key of the largest weight is a sample from
    softmax(s), and as τ → 0 it takes all of the weight. Jang et al. 2017, eq. 2.

    Args:
        temperature: τ, above zero
    """

    needs_noise = True

    def __init__(self, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.temperature = temperature

    def __call__(
        self, scores: Tensor, mask: Tensor | None = None, uniform: Tensor | None = None
    ) -> Tensor:
        """`uniform` is the noise u in (0, 1), drawn from torch's generator if not given."""
        if uniform is None:
            uniform = torch.rand_like(scores).clamp(min=torch.finfo(scores.dtype).tiny)
        return softmax((scores - (-uniform.log()).log()) / self.temperature, mask)


NORMALIZERS: dict[str, Callable[..., Tensor]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "hard": hard,
    "gumbel": Gumbel(),
}


def _hide(scores: Tensor, mask: Tensor, value: float) -> Tensor:
    """Scores with `value` for hidden keys, and 0 in rows that see nothing."""
    hidden = ~mask
    empty = hidden.all(dim=-1, keepdim=True)
    return scores.masked_fill(hidden, value).masked_fill(empty, 0.0)


def _shifted(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores whose largest visible entry is 0 and whose others are at least −4.

    A sparse normalizer gives nothing to a key that is more than 1 below the largest, so
    neither step changes its result.
    """
    if mask is not None:
        scores = _hide(scores, mask, -math.inf)
    if scores.shape[-1] == 0:
        return scores
    return (scores - scores.detach().amax(dim=-1, keepdim=True)).clamp(min=-4.0)


def _ranks(z: Tensor) -> Tensor:
    return torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)


def _nth(ordered: Tensor, size: Tensor) -> Tensor:
    """The smallest of the `size` largest entries."""
    return (
        ordered.gather(-1, (size - 1).clamp(min=0)) if ordered.shape[-1] else size.to(ordered.dtype)
    )


def _only(values: Tensor, support: Tensor, mask: Tensor | None) -> Tensor:
    visible = support if mask is None else support & mask
    return values.masked_fill(~visible, 0.0).clamp(min=0.0)
