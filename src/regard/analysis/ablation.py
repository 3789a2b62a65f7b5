"""How the output of a model changes when a part of its attention is hidden.

Functions take `Pairs` or a batch for a model of this library, and for any other model a function
that runs it and returns what is to be explained, for each example (B,) or as one number:

    ablate(model, lambda: model(**inputs).logits[:, -1, word], heads=[3])
"""

import warnings
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.trace import Call, capture, edit


class Pairs(NamedTuple):
    """Source sentences and their targets; a `Batch` has the same fields and can be used instead."""

    source: Tensor  # (B, S) ids, or (B, S, width) frames
    source_lengths: Tensor | None  # (B,)
    target: Tensor  # (B, T) ids, from begin to end
    target_lengths: Tensor | None = None  # (B,)


class HeadChange(NamedTuple):
    """The change of the targets' mean log-probability if a head is hidden, in nats."""

    name: str
    head: int
    change: float


def token_log_probabilities(model: Any, pairs: Any) -> Tensor:
    """log p of each target token after the first, given those before it, (B, T − 1).

    Args:
        model: with `encode`, `decode` and `output`
        pairs: `Pairs` or a batch; the result is 0 beyond the length of a target
    """
    memory = model.encode(pairs.source, pairs.source_lengths)
    logits = model.output(model.decode(memory, pairs.target[:, :-1]))  # (B, T − 1, vocabulary)
    after = pairs.target[:, 1:]
    found = logits.log_softmax(-1).gather(-1, after.unsqueeze(-1)).squeeze(-1)
    if pairs.target_lengths is None:
        return found
    position = torch.arange(after.shape[1], device=after.device)
    return found * (position < pairs.target_lengths.unsqueeze(-1) - 1)


def ablate(
    model: nn.Module,
    pairs: Any | Callable[[], Tensor],
    layers: str | Sequence[str] = "*",
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    keys: Sequence[int] | None = None,
    cells: Sequence[tuple[int, int]] | None = None,
) -> Tensor:
    """How the log-probability of each target, or any number, changes when a part is hidden.

        Δ = log p(y | x, hidden) − log p(y | x)

    It is below 0 if the part was useful. Turn dropout off: `model.eval()`.

    >>> from regard.models import build
    >>> sizes = {"source_vocabulary": 13, "target_vocabulary": 11, "hidden": 6, "embedding": 5}
    >>> model = build("luong", **sizes).eval()
    >>> ids = torch.tensor([[1, 5, 7, 2]])
    >>> ablate(model, Pairs(ids, None, ids), keys=[1]).shape
    torch.Size([1])

    Args:
        model: one of `regard.models`, or any other with a function
        pairs: `Pairs` or a batch; or a function that returns (B,) or one number
        layers, heads, queries, keys, cells: what to hide, see `regard.trace.edit`

    Returns: (B,), in nats, or the change of what the function returns
    """
    with torch.no_grad():
        before = _number(model, pairs)
        with edit(model, layers, heads=heads, queries=queries, keys=keys, cells=cells):
            after = _number(model, pairs)
    return after - before


def _number(model: Any, pairs: Any | Callable[[], Tensor]) -> Tensor:
    return pairs() if callable(pairs) else token_log_probabilities(model, pairs).sum(-1)


def head_importance(
    model: nn.Module, pairs: Any | Callable[[], Tensor], layers: str | Sequence[str] = "*"
) -> list[HeadChange]:
    """Hide each head alone, and sort by the loss of log-probability, the largest first.

    Michel et al. 2019, section 3.1. The arguments are those of `ablate`.
    """
    patterns = [layers] if isinstance(layers, str) else layers
    found = []
    for call in attention_calls(model, pairs):
        if not any(fnmatchcase(call.name, pattern) for pattern in patterns):
            continue
        for head in range(call.heads):
            change = ablate(model, pairs, call.name, heads=[head]).mean()
            found.append(HeadChange(call.name, head, float(change)))
    return sorted(found, key=lambda each: each.change)


def word_importance(model: nn.Module, pairs: Any) -> Tensor:
    """The change of log p(y | x) if a source word is hidden from the decoder, (B, S)."""
    cross = [call.name for call in attention_calls(model, pairs) if call.queries != call.keys]
    if not cross:
        raise ValueError(f"{type(model).__name__} has no attention from target to source")
    positions = range(pairs.source.shape[1])
    return torch.stack([ablate(model, pairs, cross, keys=[j]) for j in positions], dim=-1)


def attention_calls(model: nn.Module, pairs: Any | Callable[[], Tensor]) -> list[Call]:
    """The attention calls of a model over some pairs, one for each module."""
    with warnings.catch_warnings(), capture(model) as trace, torch.no_grad():
        warnings.filterwarnings("ignore", "capture recorded nothing")  # a model without attention
        _number(model, pairs)
    return trace.stitched().calls
