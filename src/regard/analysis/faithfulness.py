"""Whether attention shows what mattered: beside occlusion, gradients, and a control."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.ablation import Pairs, attention_calls, token_log_probabilities
from regard.analysis.kendall import kendall

UNK = 3  # in every tokenizer


class Faithfulness(NamedTuple):
    """Agreement in order (Kendall's τ), averaged over target tokens: 1 is the same order.

    A control near 0 is what attention that knows nothing would get. Where occlusion and gradients
    do not agree with each other either, there is no truth to be faithful to.
    """

    occlusion: float  # attention with occlusion
    gradient: float  # attention with gradients
    occlusion_control: float  # random attention with occlusion
    gradient_control: float  # random attention with gradients
    agreement: float  # occlusion with gradients


def faithfulness(
    model: Any, source: Tensor, target: Tensor, *, weights: Tensor | None = None, seed: int = 0
) -> Faithfulness:
    """Compare a map with what the output depends on. After Jain & Wallace 2019, section 4.1.

    Args:
        model: one of `regard.models`, in eval mode
        source: one sentence, ids (S,)
        target: ids (T,), from begin to end
        weights: the map, (T − 1, S); the mean over all heads that attend to the source if None
        seed: of the random attention
    """
    S, T = len(source), len(target) - 1
    if S < 2:
        raise ValueError("an order needs a source of two tokens or more")
    weights = cross_attention(model, source, target) if weights is None else weights
    if weights.shape != (T, S):
        raise ValueError(
            f"weights should be {(T, S)}, a row for each token to write, got {tuple(weights.shape)}"
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
    """How much less likely each target token is without each source token, (T − 1, S).

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
    """How steep log p of each target token is in each source token's embedding, (T − 1, S).

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


def _agreement(first: Tensor, second: Tensor) -> float:
    """The mean τ over rows; rows that are all ties say nothing."""
    found = torch.tensor([kendall(a, b) for a, b in zip(first, second, strict=True)])
    return float(found.nanmean())
