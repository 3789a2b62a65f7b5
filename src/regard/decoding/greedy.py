"""Greedy search, and the walk that it shares with sampling: one continuation a sentence."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import EOS
from regard.decoding.hypothesis import EMPTY, Hypothesis
from regard.decoding.limits import Limits
from regard.decoding.scores import Forced, Reader
from regard.decoding.search import Model, begin, evaluating, forbidden
from regard.decoding.trail import Ending, Trail

Choose = Callable[[Reader, Tensor, Forced, np.ndarray], tuple[Tensor, Tensor]]
"""(reader, features (entries, width), what is forced, the sentence of each entry) -> tokens of
the entries and their log-probabilities, (entries, 1) each"""

CROWD = 0.75
"""Entries of finished sentences stay until only this share of a batch is still at work."""


def greedy(
    model: Model,
    source: Tensor,
    source_lengths: Tensor | None = None,
    *,
    limits: Limits = Limits(),  # noqa: B008
    prefix: Sequence[Sequence[int]] | None = None,
    forbid: Sequence[int] = (),
    return_map: bool = False,
) -> list[Hypothesis]:
    """Emit the likeliest token, again and again, until the end or the limit.

    >>> from regard.models import build
    >>> model = build("luong", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> found = greedy(model, torch.randint(4, 13, (2, 5)), torch.tensor([5, 3]), return_map=True)
    >>> found[1].maps["decoder.attention"].shape == (1, len(found[1].tokens), 3)
    True

    Args:
        model: with `encode`, `start`, `step` and `output`
        source: ids (batch, S) or frames (batch, S, width)
        source_lengths: (batch,), all S if None; a source of length 0 becomes no tokens at all
        limits: how long an output may become
        prefix: ids that each output must begin with, one list a sentence
        forbid: ids never to be emitted, such as that of unknown tokens
        return_map: also stitch the weights of every step to maps of (heads, tokens, S)

    Returns: one hypothesis a sentence, in the order of the sources
    """

    def likeliest(
        read: Reader, features: Tensor, forced: Forced, sentences: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        score, token = read.top(features, 1, forced)
        return token, score

    return walk(
        model,
        source,
        source_lengths,
        likeliest,
        limits=limits,
        prefix=prefix,
        forbid=forbid,
        return_map=return_map,
    )


def walk(
    model: Model,
    source: Tensor,
    source_lengths: Tensor | None,
    choose: Choose,
    *,
    limits: Limits,
    prefix: Sequence[Sequence[int]] | None,
    forbid: Sequence[int],
    return_map: bool,
) -> list[Hypothesis]:
    """Continue every sentence by one token at a time, as `choose` says.

    Args: those of `greedy`, and
        choose: picks a token of each entry by its features
    """
    nothing = EMPTY._replace(maps={}) if return_map else EMPTY
    found = [nothing] * len(source)
    with evaluating(model):
        search = begin(
            model, source, source_lengths, limits=limits, prefix=prefix, return_map=return_map
        )
        if search is None:
            return found
        read = Reader(model.output, forbidden(forbid, model, source.device))
        state, tokens, trail = search.state, search.first, Trail()
        owner = np.arange(len(search.numbers))  # the sentence of each entry of the batch
        working = np.ones(len(owner), dtype=bool)
        totals = np.zeros(len(owner))
        endings: dict[int, Ending] = {}
        while working.any():
            features, state = model.step(tokens, state)
            forced = search.forced(owner, len(trail))
            tokens, scores = choose(read, features, forced, search.numbers[owner])
            tokens = tokens.squeeze(1)
            chosen = tokens.cpu().numpy()
            totals += scores.squeeze(1).cpu().numpy()
            steps = len(trail) + 1
            over = working & ((chosen == EOS) | (search.limits[owner] <= steps))
            for entry in over.nonzero()[0].tolist():
                score = float(totals[entry])
                endings[int(owner[entry])] = Ending(steps, entry, int(chosen[entry]), score)
            working &= ~over
            stay = np.arange(len(owner))
            weights = state.weights
            if working.mean() <= CROWD:
                stay = working.nonzero()[0]
                index = torch.from_numpy(stay).to(source.device)
                state, tokens = state.reorder(index), tokens[index]
                owner, working, totals = owner[stay], working[stay], totals[stay]
            trail.step(chosen[stay], stay, weights)
    ends = [endings[sentence] for sentence in range(len(endings))]
    maps = trail.maps(ends, search.lengths.tolist()) if return_map else [None] * len(ends)
    for number, end, map in zip(search.numbers, ends, maps, strict=True):
        found[number] = Hypothesis(trail.tokens(end), end.score, map)
    return found
