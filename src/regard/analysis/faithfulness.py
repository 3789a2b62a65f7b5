"""Faithfulness of attention: its agreement with occlusion and gradients, beside a control."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.ablation import Pairs, attention_calls, token_log_probabilities

UNK = 3  # of every tokenizer


class Faithfulness(NamedTuple):
    """Kendall's τ between two orders of the source, averaged over target tokens: 1 is the same.

    Controls use random attention, whose τ is near 0. Where occlusion and gradients do not agree
    with each other, neither is a ground truth to be faithful to.
    """

    occlusion: float  # attention with occlusion
    gradient: float  # attention with gradients
    occlusion_control: float  # random attention with occlusion
    gradient_control: float  # random attention with gradients
    agreement: float  # occlusion with gradients


def faithfulness(
    model: Any, source: Tensor, target: Tensor, *, weights: Tensor | None = None, seed: int = 0
) -> Faithfulness:
    """Compare a map with the importance of source tokens. After Jain & Wallace 2019, section 4.1.

    Args:
        model: one of `regard.models`, in eval mode
        source: one sentence, ids (S,)
        target: ids (T,), from begin to end
        weights: the map, (T − 1, S); the mean over all heads that attend to the source if None
        seed: of the random attention
    """
    S, T = len(source), len(target) - 1
    if S < 2:
        raise ValueError("faithfulness needs a source of two tokens or more")
    weights = cross_attention(model, source, target) if weights is None else weights
    if weights.shape != (T, S):
        raise ValueError(
            f"weights should be {(T, S)}, a row for each target token, got {tuple(weights.shape)}"
        )
    occluded = occlusion(model, source, target)
    slopes = gradients(model, source, target)
    noise = torch.randn(T, S, generator=torch.Generator().manual_seed(seed)).softmax(-1)
    return Faithfulness(
        _agreement(weights, occluded),
        _agreement(weights, slopes),
        _agreement(noise, occluded),
        _agreement(noise, slopes),
        _agreement(occluded, slopes),
    )


def cross_attention(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """The mean over all heads that attend from target to source, (T − 1, S)."""
    calls = attention_calls(model, Pairs(source[None], None, target[None]))
    maps = [call.map.dense()[0] for call in calls if call.queries != call.keys]
    if not maps:
        raise ValueError(f"{type(model).__name__} has no attention from target to source")
    return torch.cat(maps).mean(0)


def occlusion(model: Any, source: Tensor, target: Tensor, *, unknown: int = UNK) -> Tensor:
    """The loss of log-probability of each target token without each source token, (T − 1, S).

    A source token is replaced by the unknown one; the number is log p(yₜ | x) − log p(yₜ | x₋ⱼ).
    """
    S = len(source)
    changed = source.repeat(S + 1, 1)
    changed[torch.arange(S), torch.arange(S)] = unknown  # the last row stays as it is
    with torch.no_grad():
        pairs = Pairs(changed, None, target.repeat(S + 1, 1))
        found = token_log_probabilities(model, pairs)  # (S + 1, T − 1)
    return (found[-1] - found[:-1]).T


def gradients(model: Any, source: Tensor, target: Tensor) -> Tensor:
    """The gradient norm of each target token's log p in each source embedding, (T − 1, S).

    The number is ‖∂ log p(yₜ | x) / ∂ eⱼ‖₂.
    """
    held: list[Tensor] = []

    def hold(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        held.append(output.detach().requires_grad_())
        return held[-1]

    reader: nn.Module = model.source if hasattr(model, "source") else model.encoder.embedding
    hook = reader.register_forward_hook(hold)
    try:
        with torch.enable_grad():
            found = token_log_probabilities(model, Pairs(source[None], None, target[None]))[0]
            rows = [torch.autograd.grad(each, held[0], retain_graph=True)[0] for each in found]
    finally:
        hook.remove()
    return torch.stack([row[0].norm(dim=-1) for row in rows])


def kendall(a: Tensor, b: Tensor) -> float:
    """Kendall's τ-b: 1 for the same order, −1 for the opposite one, 0 for no relation.

        τ = (concordant − discordant) / √((pairs − ties in a)(pairs − ties in b))

    Kendall 1945. NaN if a number is NaN, one list is all ties, or there are fewer than two numbers.

    >>> kendall(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0]))
    0.3333333333333333

    Args:
        a, b: (n,)
    """
    if a.shape != b.shape or a.dim() != 1:
        raise ValueError(
            f"kendall takes two lists of one length, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    first, second = (x.detach().to(torch.float64) for x in (a, b))
    if bool(first.isnan().any() | second.isnan().any()):
        return math.nan
    signs_a = (first[:, None] - first).sign()  # (n, n), each pair twice
    signs_b = (second[:, None] - second).sign()
    agreement = float((signs_a * signs_b).sum())
    untied = float(signs_a.abs().sum()) * float(signs_b.abs().sum())
    return agreement / math.sqrt(untied) if untied else math.nan


def _agreement(first: Tensor, second: Tensor) -> float:
    """The mean τ over rows, without rows that are all ties."""
    found = torch.tensor([kendall(a, b) for a, b in zip(first, second, strict=True)])
    return float(found.nanmean())
