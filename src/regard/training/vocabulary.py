"""Cross entropy over a vocabulary without ever holding the scores of all tokens."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CELLS = 2**20  # scores that are held at a time: a few megabytes, which stay in the cache


def vocabulary_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The summed cross entropy of targets under softmax(features · weightᵀ + bias).

        loss = Σₙ Σᵥ −qₙᵥ log pₙᵥ,  qₙᵥ = (1 − ε) [v = targetₙ] + ε / V     Szegedy et al. 2016, 7

    It is `F.cross_entropy(F.linear(features, weight, bias), targets, reduction="sum")`, some rows
    at a time. The gradient, (p − q) times the other factor, is taken while the rows are at hand:
    memory is that of the features and the weight, and no score is computed twice.

    >>> features, weight = torch.zeros(3, 5, requires_grad=True), torch.randn(7, 5)
    >>> loss = vocabulary_loss(features, weight, None, torch.tensor([1, 6, 0]))
    >>> torch.allclose(loss, 3 * torch.tensor(7.0).log())
    True

    Args:
        features: (n, D)
        weight: (V, D), that of the output; it may be shared with an embedding
        bias: (V,) or None
        targets: whole numbers (n,), from 0 to V − 1
        label_smoothing: ε, at least 0 and below 1

    Under autocast the products are in its dtype, and sums and softmax in float32.

    Returns: (), differentiable once in features, weight and bias
    """
    if features.dim() != 2 or weight.dim() != 2 or features.shape[1] != weight.shape[1]:
        raise ValueError(
            "features should be (n, D) and weight (V, D), got "
            f"{tuple(features.shape)} and {tuple(weight.shape)}"
        )
    if targets.shape != features.shape[:1] or targets.is_floating_point():
        raise ValueError(
            f"targets should be whole numbers ({len(features)},), got {targets.dtype} "
            f"{tuple(targets.shape)}"
        )
    kind = features.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return _VocabularyLoss.apply(features, weight, bias, targets, label_smoothing)
    low = torch.get_autocast_dtype(kind)
    with torch.autocast(kind, enabled=False):
        parts = (features.to(low), weight.to(low), None if bias is None else bias.to(low))
        return _VocabularyLoss.apply(*parts, targets, label_smoothing)


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
    ) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        slopes = [
            torch.zeros_like(tensor, dtype=_wide(tensor)) if tensor is not None and needed else None
            for tensor, needed in zip((features, weight, bias), wanted, strict=True)
        ]
        total = features.new_zeros((), dtype=torch.float64)
        size = max(1, CELLS // len(weight))
        for first in range(0, len(features), size):
            rows = slice(first, first + size)
            total += _rows(features[rows], weight, bias, targets[rows], smoothing, rows, slopes)
        ctx.save_for_backward(*slopes)
        ctx.dtype = features.dtype
        return total.to(_wide(features))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        slopes = (
            None if slope is None else (slope * upstream).to(ctx.dtype)
            for slope in ctx.saved_tensors
        )
        return (*slopes, None, None)


def _rows(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    rows: slice,
    slopes: list[Tensor | None],
) -> Tensor:
    """The loss of some rows, whose part of the gradient is added to the slopes."""
    share = smoothing / len(weight)
    scores = torch.nn.functional.linear(features, weight, bias).to(_wide(features))  # (rows, V)
    scores = torch.log_softmax(scores, dim=-1, out=scores)
    column = targets.unsqueeze(1)
    loss = (smoothing - 1.0) * scores.gather(1, column).sum(dtype=torch.float64)
    if smoothing:
        loss -= share * scores.sum(dtype=torch.float64)
    if any(slope is not None for slope in slopes):
        slope = scores.exp_()  # becomes p − q
        if smoothing:
            slope -= share
        slope.scatter_add_(1, column, slope.new_full(column.shape, smoothing - 1.0))
        by_feature, by_weight, by_bias = slopes
        factor = slope.to(features.dtype)
        if by_feature is not None and by_feature.dtype == factor.dtype:
            torch.mm(factor, weight, out=by_feature[rows])
        elif by_feature is not None:
            by_feature[rows] = factor @ weight
        if by_weight is not None and by_weight.dtype == factor.dtype:
            by_weight.addmm_(factor.t(), features)
        elif by_weight is not None:
            by_weight += factor.t() @ features
        if by_bias is not None:
            by_bias += slope.sum(0)
    return loss


def _wide(tensor: Tensor) -> torch.dtype:
    """The dtype of sums: float32 for halves, else that of the tensor."""
    return torch.promote_types(tensor.dtype, torch.float32)
