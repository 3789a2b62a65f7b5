"""Faithfulness of attention: its agreement with occlusion and gradients, beside a control.

`compare_methods` does the same for all methods of attribution, on any model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.ablation import Pairs, attention_calls, token_log_probabilities
from regard.analysis.attribution import METHODS, Target, attribute, of_output
from regard.trace import edit
from regard.trace.capture import Captured

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


class MethodScore(NamedTuple):
    """A method, or its random control: means over examples with the half width of 95 %.

    Deletion is how much of the target is lost on average while words are hidden, the most important
    first; insertion how much is there while they are shown in that order. Higher is more faithful.
    """

    method: str
    is_control: bool
    deletion: float
    deletion_error: float  # NaN for one example
    insertion: float
    insertion_error: float


@dataclass(frozen=True)
class MethodComparison:
    """What `compare_methods` returns.

    Args:
        scores: of each method and its control
        deletion, insertion: curves by method, means over examples at equal shares of the words,
            (steps + 1,): what is left of the target
        agreement: Kendall's τ between the orders of two methods, mean over examples
    """

    scores: list[MethodScore]
    deletion: dict[str, Tensor]
    insertion: dict[str, Tensor]
    agreement: dict[tuple[str, str], float]

    def __str__(self) -> str:
        lines = [f"{'method':20} {'deletion':>16} {'insertion':>16}"]
        for each in self.scores:
            name = f"  random {each.method}"[:20] if each.is_control else each.method
            lines.append(
                f"{name:20} {each.deletion:8.3f} ± {each.deletion_error:<5.2g} "
                f"{each.insertion:8.3f} ± {each.insertion_error:<5.2g}"
            )
        return "\n".join(lines)


def compare_methods(
    examples: Sequence[tuple[Captured, Target]],
    methods: Sequence[str] = tuple(METHODS),
    *,
    steps: int = 8,
    seed: int = 0,
) -> MethodComparison:
    """Compare methods of attribution by what hiding the words that they name does to the target.

    Args:
        examples: traces of one input each, by `capture(model, gradients=True)`, with a target that
            is no tensor, see `attribute`
        methods: names in `METHODS`
        steps: points of the curves after the first
        seed: of the random controls
    """
    if not examples:
        raise ValueError("compare_methods needs one example or more, got none")
    curves: dict[tuple[str, bool], list[tuple[Tensor, Tensor]]] = {}
    taus: dict[tuple[str, str], list[float]] = {}
    for trace, target in examples:
        orders = {name: attribute(trace, target, name) for name in methods}
        for name, scores in orders.items():
            control = attribute(trace, target, name, control=seed)
            for kind, each in ((False, scores), (True, control)):
                curves.setdefault((name, kind), []).append(_curves(trace, target, each, steps))
            for other, theirs in orders.items():
                taus.setdefault((name, other), []).append(kendall(scores, theirs))
    means = {
        key: [torch.stack(each).mean(0) for each in zip(*runs, strict=True)]
        for key, runs in curves.items()
    }
    scores_of = [
        MethodScore(
            name,
            kind,
            *_mean([float((run[0][0] - run[0]).mean()) for run in runs]),
            *_mean([float((run[1] - run[1][0]).mean()) for run in runs]),
        )
        for (name, kind), runs in curves.items()
    ]
    return MethodComparison(
        scores_of,
        {name: means[name, False][0] for name in methods},
        {name: means[name, False][1] for name in methods},
        {pair: float(torch.tensor(each).nanmean()) for pair, each in taus.items()},
    )


@torch.no_grad()
def _curves(trace: Captured, target: Target, scores: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The target while words are hidden, and while they are shown, the most important first."""
    forward, N = trace.forward, len(scores)
    assert forward is not None
    order = scores.argsort(descending=True, stable=True).tolist()
    counts = [round(N * step / steps) for step in range(steps + 1)]

    def value(hidden: list[int]) -> Tensor:
        if not hidden:
            return of_output(forward.model, forward.again(), target)
        with edit(forward.model) as edits:
            edits.hide(word=hidden)
            return of_output(forward.model, forward.again(), target)

    deletion = torch.stack([value(order[:count]) for count in counts])
    return deletion, torch.stack([value(order[count:]) for count in counts])


def _mean(values: list[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval: 1.96 standard errors."""
    sample = torch.tensor(values, dtype=torch.float64)
    error = float(sample.std()) * 1.96 / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(sample.mean()), error


def _agreement(first: Tensor, second: Tensor) -> float:
    """The mean τ over rows, without rows that are all ties."""
    found = torch.tensor([kendall(a, b) for a, b in zip(first, second, strict=True)])
    return float(found.nanmean())
