"""Sampling: draw each token from the model's distribution, sharpened or truncated."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decoding.greedy import decode_steps
from regard.decoding.scores import Forced, OutputScorer
from regard.decoding.search import Hypothesis, Limits, Model, OnStep


def sample(
    model: Model,
    source: Tensor,
    source_lengths: Tensor | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
    limits: Limits = Limits(),  # noqa: B008
    prefix: Sequence[Sequence[int]] | None = None,
    forbid: Sequence[int] = (),
    return_map: bool = False,
    on_step: OnStep | None = None,
) -> list[Hypothesis]:
    """Sample one continuation of every sentence.

    The sample of a sentence depends on the seed and its number, not on the rest of the batch. Its
    score is the model's own log-probability, whatever the temperature.

    >>> from regard.models import build
    >>> model = build("luong", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> source = torch.randint(4, 13, (2, 5))
    >>> both = sample(model, source, seed=7)
    >>> sample(model, source[1:], seed=7, numbers=[1])[0].tokens == both[1].tokens
    True

    Args:
        temperature: divides the logits; below 1 sharpens, above 1 flattens
        top_k: draw from this many of the most likely tokens. Fan et al. 2018
        top_p: draw from the most likely tokens with this total probability. Holtzman et al. 2020
        seed: of the random numbers
        numbers: of the sentences (batch,), 0, 1, … if None
        model, source, source_lengths, limits, prefix, forbid, return_map: as in `greedy`
    """
    _check(temperature, top_k, top_p, seed)
    if numbers is None:
        numbers = range(len(source))
    elif len(numbers) != len(source):
        raise ValueError(f"numbers should be {len(source)}, one per source, got {len(numbers)}")
    draws = [np.random.default_rng((seed, number)) for number in numbers]

    def choose(
        scorer: OutputScorer, features: Tensor, forced: Forced, sentences: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        scores = scorer(features, forced)
        drawn = torch.tensor([draws[s].random() for s in sentences], dtype=torch.double)
        tokens: Tensor | None = None
        if top_k is not None:
            logits, tokens = scores.top(top_k)
        elif top_p is not None:
            logits, tokens = scores.logits.sort(descending=True)
        else:
            logits = scores.logits
        below = logits.double() - logits.amax(-1, keepdim=True)  # 0 divided stays finite
        probabilities = (below / temperature).softmax(-1)
        if top_p is not None:
            before = probabilities.cumsum(-1) - probabilities
            probabilities = probabilities.where(before < top_p, 0.0)
        sums = probabilities.cumsum(-1)
        threshold = drawn.to(sums)[:, None] * sums[:, -1:]
        index = (sums <= threshold).sum(-1, keepdim=True)  # below the vocabulary, as drawn < 1
        token = index if tokens is None else tokens.gather(1, index)
        return token, scores.of(token)

    return decode_steps(
        model,
        source,
        source_lengths,
        choose,
        limits=limits,
        prefix=prefix,
        forbid=forbid,
        return_map=return_map,
        on_step=on_step,
    )


def _check(temperature: float, top_k: int | None, top_p: float | None, seed: int) -> None:
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"temperature should be above 0, got {temperature}; 0 is greedy search")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k should be 1 or more, got {top_k}")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p should be above 0 and at most 1, got {top_p}")
    if seed < 0:
        raise ValueError(f"seed should be 0 or more, got {seed}")
