"""Each path with each score and mask that it takes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import regard

B, H, M, N, D, E = 2, 3, 23, 29, 5, 7


def negative_distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


SCORES: dict[str, Callable[[], object]] = {
    "dot": regard.Dot,
    "scaled_dot": regard.ScaledDot,
    "general": lambda: regard.General(D, D),
    "biased_general": lambda: _random_bias(regard.BiasedGeneral(D, D)),
    "cosine": lambda: regard.Cosine(3.0),
    "location": lambda: regard.Location(D, N),
    "additive": lambda: regard.Additive(D, D, 11),
    "concat": lambda: regard.Concat(D, D, 11),
    "activated_general": lambda: regard.ActivatedGeneral(D, D),
    "callable": lambda: negative_distance,
    "softcap": lambda: regard.SoftCap(1.5),
    "softcap general": lambda: regard.SoftCap(0.7, regard.General(D, D)),
    "softcap additive": lambda: regard.SoftCap(0.5, regard.Additive(D, D, 11)),
}
DOT = ["dot", "scaled_dot", "general", "biased_general", "cosine", "location"]
TANH = ["additive", "concat"]
CAPPED = ["softcap", "softcap general"]
MASKS: dict[str, Callable[[], regard.Mask | None]] = {
    "none": lambda: None,
    "causal": regard.causal,
    "causal from the start": lambda: regard.causal(offset=0),
    "window": lambda: regard.window(3, 2),
    "lengths": lambda: regard.lengths(torch.tensor([N, 11])),
    "empty sequence": lambda: regard.lengths(torch.tensor([0, 13])),
    "both lengths": lambda: regard.lengths(torch.tensor([17, N]), torch.tensor([M, 19])),
    "segments": lambda: regard.segments(torch.arange(M) // 6, torch.arange(N) // 7),
    "causal padded": lambda: regard.causal() & regard.lengths(torch.tensor([N, 7])),
    "not window": lambda: ~regard.window(4, 4),
    "prefix": lambda: regard.causal() | regard.lengths(torch.tensor([9, 13])),
    "window with sinks": lambda: (
        regard.causal() & (regard.window(4, 0) | regard.global_tokens(2, queries=False))
    ),
    "window with global tokens": lambda: (
        regard.window(2, 3) | regard.global_tokens(torch.arange(2 * 17).view(2, 17) % 7 == 3)
    ),
    "packed": lambda: (
        regard.causal() & regard.segments(torch.arange(M) // 6 + 1, torch.arange(N) // 6)
    ),
    "blocks": lambda: regard.block_sparse(torch.eye(6).roll(2, 0) + torch.eye(6) > 0, 5),
    "padded blocks": lambda: (
        regard.block_sparse(torch.ones(3, 3).tril() > 0, 11) & regard.lengths(torch.tensor([0, 23]))
    ),
    "blocks of heads": lambda: regard.block_sparse(
        torch.rand(H, 8, 8, generator=torch.Generator().manual_seed(1)) > 0.7, 4
    ),
    "random": lambda: regard.visible(
        torch.rand(H, M, N, generator=torch.Generator().manual_seed(1)) > 0.6
    ),
}
WHOLE_INTERVALS = [
    "none", "causal", "causal from the start", "window", "lengths", "empty sequence",
    "both lengths", "causal padded",
]  # fmt: skip
SAME_FOR_HEADS = [name for name in MASKS if name not in ("none", "random", "blocks of heads")]


def _random_bias(score: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        torch.nn.init.normal_(score.bias)  # type: ignore[arg-type]
    return score


def cases() -> list[tuple[str, str, str]]:
    """Each path with each score and mask it takes."""
    found = [("fused", s, m) for s in DOT for m in MASKS]
    found += [("banded", s, m) for s in DOT for m in SAME_FOR_HEADS]
    found += [("capped", s, m) for s in CAPPED for m in MASKS]
    found += [
        ("block_sparse", s, m) for s in ("scaled_dot", "general") for m in MASKS if m != "none"
    ]
    found += [("additive_kernel", s, m) for s in TANH for m in WHOLE_INTERVALS]
    found += [("blockwise", s, m) for s in SCORES for m in MASKS]
    return found


@dataclass
class Run:
    output: Tensor
    gradients: dict[str, Tensor]


def run(path: str, score: object, mask: object, dtype: torch.dtype, **more: object) -> Run:
    """One forward and backward pass on fixed inputs, in a dtype and on a path."""
    generator = torch.Generator().manual_seed(7)
    inputs = {
        name: torch.randn(B, H, length, width, dtype=torch.float64, generator=generator)
        .to(dtype)
        .requires_grad_()
        for name, length, width in (("query", M, D), ("key", N, D), ("value", N, E))
    }
    upstream = torch.randn(B, H, M, E, dtype=torch.float64, generator=generator).to(dtype)
    parameters: dict[str, Tensor] = {}
    for module in (score, more.get("normalize")):
        if isinstance(module, torch.nn.Module):
            module.to(dtype)
            parameters |= dict(module.named_parameters())
    torch.manual_seed(3)
    output = regard.attend(**inputs, score=score, mask=mask, path=path, **more)  # type: ignore
    leaves = inputs | parameters
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream, allow_unused=True)
    found = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }
    return Run(output.detach(), found)


def assert_close(found: Run, truth: Run, tolerance: float) -> None:
    for name, value in {"output": truth.output, **truth.gradients}.items():
        other = found.output if name == "output" else found.gradients[name]
        assert other.dtype == found.output.dtype
        scale = max(float(value.abs().max()), 1e-30)
        error = float((other.double() - value.double()).abs().max()) / scale
        assert error <= tolerance, f"{name}: relative error {error:.2g}"


PATH_SCORE = [
    ("reference", "scaled_dot"),
    ("reference", "additive"),
    ("fused", "scaled_dot"),
    ("fused", "general"),
    ("banded", "scaled_dot"),
    ("capped", "softcap"),
    ("block_sparse", "scaled_dot"),
    ("additive_kernel", "additive"),
    ("blockwise", "scaled_dot"),
    ("blockwise", "additive"),
    ("blockwise", "callable"),
]
