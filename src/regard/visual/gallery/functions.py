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
    table: list[tuple[str, str, str, str, Callable[[int], Score]]] = [
        ("Dot", "f(q, k) = q · k", "Luong et al. 2015", '"dot"', lambda d: scores.Dot()),
        ("Scaled dot", "f(q, k) = q · k / √d", "Vaswani et al. 2017", '"scaled_dot"',
         lambda d: scores.ScaledDot()),
        ("Cosine", "f(q, k) = β cos(q, k)", "Graves et al. 2014", "regard.Cosine(8.0)",
         lambda d: scores.Cosine(8.0)),
        ("General", "f(q, k) = qᵀ W k", "Luong et al. 2015", "regard.General(q_dim, k_dim)",
         lambda d: _identity(scores.General(d, d))),
        ("Biased general", "f(q, k) = kᵀ (W q + b)", "Sordoni et al. 2016",
         "regard.BiasedGeneral(q_dim, k_dim)", lambda d: _identity(scores.BiasedGeneral(d, d))),
        ("Activated general", "f(q, k) = tanh(kᵀ W q + b)", "Ma et al. 2017",
         "regard.ActivatedGeneral(q_dim, k_dim)",
         lambda d: _identity(scores.ActivatedGeneral(d, d))),
        ("Additive", "f(q, k) = wᵀ tanh(W₁ q + W₂ k)", "Bahdanau et al. 2015",
         "regard.Additive(q_dim, k_dim, hidden)", lambda d: scores.Additive(d, d, d)),
        ("Concat", "f(q, k) = wᵀ tanh(W [q ; k])", "Luong et al. 2015",
         "regard.Concat(q_dim, k_dim, hidden)", lambda d: scores.Concat(d, d, d)),
        ("Location", "f(q, position) = W q", "Luong et al. 2015",
         "regard.Location(q_dim, max_length)", lambda d: scores.Location(d, LONGEST)),
        ("Soft cap", "f(q, k) = c · tanh(q · k / (c √d))", "Gemma Team 2024 (Gemma 2)",
         "regard.SoftCap(5.0)", lambda d: SoftCap(5.0)),
        ("Elementwise", "f(q, k) = g(q · k / √d), here g = max(s, 0)", "any function of any score",
         "regard.Elementwise(torch.relu)", lambda d: Elementwise(torch.relu)),
        ("Your own", "f(q, k) = − |q − k|", "any callable", "lambda q, k: -torch.cdist(q, k)",
         lambda d: _negative_distance),
    ]  # fmt: skip
    source, target = words()
    for name, formula, paper, code, make in table:
        torch.manual_seed(11)
        small, large = make(WORD_WIDTH), make(WIDTH)
        is_learned = isinstance(small, TRAINED)
        if isinstance(small, TRAINED):
            train(small.parameters(), partial(_weights, target, source, score=small))
        caption = "French queries, English keys" + ", trained on this pair." * is_learned
        code = f"regard.attend(q, k, v, score={code})"
        about = ("Score functions", name, formula, paper, code, caption)
        weights = _weights(target, source, score=small).detach()
        yield Exhibit(*about, weights, TARGET, SOURCE, partial(_timed, score=large))


def _normalizers() -> Iterator[Exhibit]:
    table: list[tuple[str, str | Normalizer, str, str, str, str]] = [
        ("Softmax", "softmax", '"softmax"', "w = e^s / Σ e^s", "standard",
         "Every key gets some weight."),
        ("Sparsemax", "sparsemax", '"sparsemax"', "w = max(s − τ, 0)", "Martins & Astudillo 2016",
         "Most keys get none."),
        ("1.5-entmax", "entmax15", '"entmax15"', "w = max(s/2 − τ, 0)²", "Peters et al. 2019",
         "Between softmax and sparsemax."),
        ("Hard", "hard", '"hard"', "w = one-hot(argmax s)",
         "Xu et al. 2015; straight-through gradient, Bengio et al. 2013",
         "One key gets all the weight."),
        ("Gumbel", "gumbel", '"gumbel"', "w = softmax((s + g) / τ)", "Jang et al. 2017",
         "A relaxed sample: noise g in the scores."),
        ("Sigmoid", "sigmoid", '"sigmoid"', "w = 1 / (1 + e^−s)", "Ramapuram et al. 2025",
         "Every key on its own: rows have any sum."),
        ("Sink", "sink", '"sink"', "w = e^s / (e^a + Σ e^s), here a = 0",
         "Miller 2023; learned for each head, OpenAI 2025 (GPT-OSS)",
         "A row sums to less than one: a query may attend to little."),
        ("Temperature", Normalizer(temperature=3.0), "regard.Normalizer(temperature=3.0)",
         "w = softmax(s / τ)", "Hinton et al. 2015", "Above 1 the weights are flatter."),
        ("Top-k", Normalizer(top_k=2), "regard.Normalizer(top_k=2)",
         "w = softmax of the k largest s", "Zhao et al. 2019", "All but two keys get none."),
    ]  # fmt: skip
    source, target = words()
    for name, normalize, code, formula, paper, caption in table:
        torch.manual_seed(2)
        code = f"regard.attend(q, k, v, normalize={code})"
        about = ("Normalizers", name, formula, paper, code, caption)
        weights = _weights(target, source, normalize=normalize)
        yield Exhibit(*about, weights, TARGET, SOURCE, partial(_timed, normalize=normalize))


def _masks() -> Iterator[Exhibit]:
    clauses = torch.tensor([0] * 4 + [1] * 3 + [2] * 6)

    def texts(length: int) -> Tensor:
        return clauses if length == len(clauses) else torch.arange(length) // 64

    def blocks(length: int) -> Tensor:
        count = -(-length // 4)
        return (torch.eye(count) + torch.eye(count).roll(2, 1)).bool()

    table: list[tuple[str, str, str, str, Callable[[int], masks.Mask | None]]] = [
        ("No mask", "Vaswani et al. 2017", "None", "Self-attention: all words to all words.",
         lambda n: None),
        ("Causal", "Vaswani et al. 2017", "regard.causal()", "Later words are hidden.",
         lambda n: masks.causal()),
        ("Window", "Child et al. 2019", "regard.window(2, 1)", "Two words back, one ahead.",
         lambda n: masks.window(2, 1)),
        ("Lengths", "padding", "regard.lengths(torch.tensor(9))", "The last words are padding.",
         lambda n: masks.lengths(torch.tensor(n * 9 // 13))),
        ("Segments", "packing", "regard.segments(ids)", "Three texts packed into one sequence.",
         lambda n: masks.segments(texts(n))),
        ("Packed documents", "Raffel et al. 2020", "regard.causal() & regard.segments(ids)",
         "Masks compose with & | ~: no word sees a later one or another text.",
         lambda n: masks.causal() & masks.segments(texts(n))),
        ("Prefix LM", "Raffel et al. 2020, section 3.2.1",
         "regard.causal() | regard.lengths(torch.tensor(4))",
         "The first words see each other, the others what is before them.",
         lambda n: masks.causal() | masks.lengths(torch.tensor(n * 4 // 13))),
        ("Window with sinks", "Xiao et al. 2024",
         "regard.causal() & (regard.window(2, 0) | regard.global_tokens(1, queries=False))",
         "The first word stays visible when the window has moved on.",
         lambda n: masks.causal() & (masks.window(2, 0) | masks.global_tokens(1, queries=False))),
        ("Window with global tokens", "Beltagy et al. 2020",
         "regard.window(1, 1) | regard.global_tokens(2)",
         "Two words see all and are seen by all.",
         lambda n: masks.window(1, 1) | masks.global_tokens(2)),
        ("Blocks", "Child et al. 2019", "regard.block_sparse(pattern, 4)",
         "A pattern of blocks of four words.", lambda n: masks.block_sparse(blocks(n), 4)),
    ]  # fmt: skip
    source, _ = words()
    for name, paper, code, caption, make in table:
        code = f"regard.attend(x, x, x, mask={code})"
        about = ("Masks", name, "w = softmax(s + mask)", paper, code, caption)
        weights = _weights(source / 3, source, mask=make(len(SOURCE)))
        timed = lambda n, make=make: _timed(n, mask=make(n))  # noqa: E731
        yield Exhibit(*about, weights, SOURCE, SOURCE, timed)


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
