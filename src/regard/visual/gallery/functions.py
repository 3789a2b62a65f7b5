"""Exhibits of `attend`: its scores, normalizers and masks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import attend
from regard.core import mask as masks
from regard.core import score as scores
from regard.core.elementwise import Elementwise, SoftCap
from regard.core.normalize import Normalizer
from regard.core.score import Score
from regard.visual.gallery.exhibit import (
    LONGEST,
    SOURCE,
    TARGET,
    WIDTH,
    WORD_WIDTH,
    Exhibit,
    train,
    words,
)

TRAINED = (scores.ActivatedGeneral, scores.Additive, scores.Concat, scores.Location)
"""Scores that say nothing before they have learned."""


def exhibits() -> Iterator[Exhibit]:
    """Every score, normalizer and mask on the sentence."""
    yield from _scores()
    yield from _normalizers()
    yield from _masks()


def _scores() -> Iterator[Exhibit]:
    table: list[tuple[str, str, Callable[[int], Score]]] = [
        ("dot", '"dot"', lambda d: scores.Dot()),
        ("scaled-dot", '"scaled_dot"', lambda d: scores.ScaledDot()),
        ("cosine", "regard.Cosine(8.0)", lambda d: scores.Cosine(8.0)),
        ("general", "regard.General(q_dim, k_dim)", lambda d: _identity(scores.General(d, d))),
        ("biased-general", "regard.BiasedGeneral(q_dim, k_dim)",
         lambda d: _identity(scores.BiasedGeneral(d, d))),
        ("activated-general", "regard.ActivatedGeneral(q_dim, k_dim)",
         lambda d: _identity(scores.ActivatedGeneral(d, d))),
        ("additive", "regard.Additive(q_dim, k_dim, hidden)", lambda d: scores.Additive(d, d, d)),
        ("concat", "regard.Concat(q_dim, k_dim, hidden)", lambda d: scores.Concat(d, d, d)),
        ("location", "regard.Location(q_dim, max_length)", lambda d: scores.Location(d, LONGEST)),
        ("soft-cap", "regard.SoftCap(5.0)", lambda d: SoftCap(5.0)),
        ("elementwise", "regard.Elementwise(torch.relu)", lambda d: Elementwise(torch.relu)),
        ("your-own", "lambda q, k: -torch.cdist(q, k)", lambda d: _negative_distance),
    ]  # fmt: skip
    source, target = words()
    for name, code, make in table:
        torch.manual_seed(11)
        small, large = make(WORD_WIDTH), make(WIDTH)
        if isinstance(small, TRAINED):
            train(small.parameters(), partial(_weights, target, source, score=small))
        code = f"regard.attend(q, k, v, score={code})"
        weights = _weights(target, source, score=small).detach()
        timed = partial(_timed, score=large)
        yield Exhibit(f"score-{name}", code, weights, TARGET, SOURCE, timed)


def _normalizers() -> Iterator[Exhibit]:
    table: list[tuple[str, str | Normalizer, str]] = [
        ("softmax", "softmax", '"softmax"'),
        ("sparsemax", "sparsemax", '"sparsemax"'),
        ("1-5-entmax", "entmax15", '"entmax15"'),
        ("hard", "hard", '"hard"'),
        ("gumbel", "gumbel", '"gumbel"'),
        ("sigmoid", "sigmoid", '"sigmoid"'),
        ("sink", "sink", '"sink"'),
        ("temperature", Normalizer(temperature=3.0), "regard.Normalizer(temperature=3.0)"),
        ("top-k", Normalizer(top_k=2), "regard.Normalizer(top_k=2)"),
    ]
    source, target = words()
    for name, normalize, code in table:
        torch.manual_seed(2)
        code = f"regard.attend(q, k, v, normalize={code})"
        weights = _weights(target, source, normalize=normalize)
        timed = partial(_timed, normalize=normalize)
        yield Exhibit(f"normalizers-{name}", code, weights, TARGET, SOURCE, timed)


def _masks() -> Iterator[Exhibit]:
    clauses = torch.tensor([0] * 4 + [1] * 3 + [2] * 6)

    def texts(length: int) -> Tensor:
        return clauses if length == len(clauses) else torch.arange(length) // 64

    def blocks(length: int) -> Tensor:
        count = -(-length // 4)
        return (torch.eye(count) + torch.eye(count).roll(2, 1)).bool()

    table: list[tuple[str, str, Callable[[int], masks.Mask | None]]] = [
        ("no-mask", "None", lambda n: None),
        ("causal", "regard.causal()", lambda n: masks.causal()),
        ("window", "regard.window(2, 1)", lambda n: masks.window(2, 1)),
        ("lengths", "regard.lengths(torch.tensor(9))",
         lambda n: masks.lengths(torch.tensor(n * 9 // 13))),
        ("segments", "regard.segments(ids)", lambda n: masks.segments(texts(n))),
        ("packed-documents", "regard.causal() & regard.segments(ids)",
         lambda n: masks.causal() & masks.segments(texts(n))),
        ("prefix-lm", "regard.causal() | regard.lengths(torch.tensor(4))",
         lambda n: masks.causal() | masks.lengths(torch.tensor(n * 4 // 13))),
        ("window-with-sinks",
         "regard.causal() & (regard.window(2, 0) | regard.global_tokens(1, queries=False))",
         lambda n: masks.causal() & (masks.window(2, 0) | masks.global_tokens(1, queries=False))),
        ("window-with-global-tokens", "regard.window(1, 1) | regard.global_tokens(2)",
         lambda n: masks.window(1, 1) | masks.global_tokens(2)),
        ("blocks", "regard.block_sparse(pattern, 4)", lambda n: masks.block_sparse(blocks(n), 4)),
    ]  # fmt: skip
    source, _ = words()
    for name, code, make in table:
        code = f"regard.attend(x, x, x, mask={code})"
        weights = _weights(source / 3, source, mask=make(len(SOURCE)))
        timed = lambda n, make=make: _timed(n, mask=make(n))  # noqa: E731
        yield Exhibit(f"masks-{name}", code, weights, SOURCE, SOURCE, timed)


def _weights(query: Tensor, key: Tensor, **options: Any) -> Tensor:
    return attend(query, key, key, return_map=True, **options).map.dense()


def _timed(length: int, **options: Any) -> Callable[[], Any]:
    x = torch.randn(1, length, WIDTH)
    return partial(attend, x, x, x, **options)


def _negative_distance(query: Tensor, key: Tensor) -> Tensor:
    return -torch.cdist(query, key)


def _identity(score: nn.Module) -> nn.Module:
    """A bilinear score that has learned to compare: W = 1 / √d."""
    weight = score.weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        weight.copy_(torch.eye(len(weight)) / len(weight) ** 0.5)
    return score
