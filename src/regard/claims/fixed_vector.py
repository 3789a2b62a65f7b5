"""A decoder that knows the source as one vector, beside one with attention, as sources grow."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.claims.finding import Chart, Curves, Finding
from regard.models.build import build

BOS, FIRST, SYMBOLS = 1, 4, 10  # ids: 0 to 3 are special tokens, symbols follow
NAMES = {"plain": "fixed vector", "luong": "attention"}


def early_tokens_are_lost(quick: bool) -> Finding:
    """Token accuracy of copying random symbols, by the length of the source.

    Both models have the same encoder and are trained on the same batches.
    """
    lengths, steps = ((3, 6), 60) if quick else ((4, 8, 16), 400)
    rows, curves, first_curves = [], _empty(), _empty()
    for length in lengths:
        for kind, name in NAMES.items():
            correct = _train_to_copy(kind, length, steps)  # (length,), by position
            whole, first = float(correct.mean()), float(correct[0])
            rows.append((name, length, whole, first))
            curves[name].append((length, whole))
            first_curves[name].append((length, first))
    fixed, attention = curves["fixed vector"][-1][1], curves["attention"][-1][1]
    return Finding(
        ("decoder", "source length", "accuracy", "accuracy, first token"),
        rows,
        attention > fixed + 0.1,
        f"at length {lengths[-1]}, {attention:.0%} of the copied symbols are right with attention "
        f"and {fixed:.0%} without",
        "source length",
        [Chart("accuracy", curves), Chart("accuracy of the first token", first_curves)],
    )


def attention_keeps_the_gradient(quick: bool) -> Finding:
    """The gradient of the loss at the first source token of untrained models, by length.

    Through the recurrent encoder alone it passes every later state (Bengio et al. 1994).
    """
    lengths = (4, 16) if quick else (4, 8, 16, 32, 64)
    rows, curves = [], _empty()
    for length in lengths:
        norms = {name: _first_token_gradient(kind, length) for kind, name in NAMES.items()}
        rows.append((length, *norms.values(), norms["attention"] / norms["fixed vector"]))
        for name, norm in norms.items():
            curves[name].append((length, norm))
    kept = {name: line[-1][1] / line[0][1] for name, line in curves.items()}
    return Finding(
        ("source length", *NAMES.values(), "ratio"),
        rows,
        kept["attention"] > 10 * kept["fixed vector"],
        f"from length {lengths[0]} to {lengths[-1]} the gradient at the first token falls to "
        f"{kept['attention']:.2g} of itself with attention, to {kept['fixed vector']:.2g} without",
        "source length",
        [Chart("gradient at the first source token", curves, log=True)],
    )


def _empty() -> Curves:
    return {name: [] for name in NAMES.values()}


def _model(kind: str) -> Any:
    torch.manual_seed(1)
    vocabulary = FIRST + SYMBOLS
    return build(
        kind,
        source_vocabulary=vocabulary,
        target_vocabulary=vocabulary,
        embedding=32,
        hidden=64,
        cell="gru",
    )


def _batch(length: int, size: int, generator: torch.Generator) -> Tensor:
    return torch.randint(FIRST, FIRST + SYMBOLS, (size, length), generator=generator)


def _logits(model: Any, source: Tensor) -> Tensor:
    """Scores of the copied symbols, given those before, (batch, length, vocabulary)."""
    batch, length = source.shape
    given = torch.cat([source.new_full((batch, 1), BOS), source[:, :-1]], 1)
    return model.output(model(source, torch.full((batch,), length), given))


def _train_to_copy(kind: str, length: int, steps: int) -> Tensor:
    model, generator = _model(kind), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        source = _batch(length, 64, generator)
        loss = F.cross_entropy(_logits(model, source).flatten(0, 1), source.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    held_out = _batch(length, 500, generator)
    with torch.no_grad():
        return (_logits(model.eval(), held_out).argmax(-1) == held_out).double().mean(0)


def _first_token_gradient(kind: str, length: int) -> float:
    """The gradient of the embedding of a symbol that stands in the first place alone."""
    model = _model(kind)
    source = _batch(length, 32, torch.Generator().manual_seed(1))
    source[source == FIRST] = FIRST + 1
    source[:, 0] = FIRST
    loss = F.cross_entropy(_logits(model, source).flatten(0, 1), source.flatten(), reduction="sum")
    embedding = next(p for p in model.encoder.parameters() if len(p) == FIRST + SYMBOLS)
    (gradient,) = torch.autograd.grad(loss, embedding)
    return float(gradient[FIRST].norm()) / len(source)
