"""Greedy search, and the loop that it shares with sampling: one hypothesis per sentence."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import EOS
from regard.decoding.beam_slots import BeamHistory, Ending
from regard.decoding.scores import Forced, OutputScorer
from regard.decoding.search import (
    EMPTY,
    Hypothesis,
    Limits,
    Model,
    OnStep,
    begin,
    evaluating,
    forbidden,
    stepping,
)

Choose = Callable[[OutputScorer, Tensor, Forced, np.ndarray], tuple[Tensor, Tensor]]
"""(scorer, features (entries, width), forced tokens, the sentence of each entry) -> tokens of
the entries and their log-probabilities, (entries, 1) each"""

COMPACT_BELOW = 0.75
"""Finished entries are removed once at most this fraction of a batch is unfinished."""


def greedy(
    model: Model,
    source: Tensor,
    source_lengths: Tensor | None = None,
    *,
    limits: Limits = Limits(),  # noqa: B008
    prefix: Sequence[Sequence[int]] | None = None,
    forbid: Sequence[int] = (),
    return_map: bool = False,
    on_step: OnStep | None = None,
) -> list[Hypothesis]:
    """Emit the most likely token at every step, until the end token or the limit.

    >>> from regard.models import build
    >>> model = build("luong", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> found = greedy(model, torch.randint(4, 13, (2, 5)), torch.tensor([5, 3]), return_map=True)
    >>> found[1].maps["decoder.attention"].shape == (1, len(found[1].tokens), 3)
    True

    Args:
        model: with `encode`, `start`, `step` and `output`
        source: ids (batch, S) or frames (batch, S, width)
        source_lengths: (batch,), all S if None; a source of length 0 gives no tokens
        limits: on the length of outputs
        prefix: ids that each output must begin with, one list per sentence
        forbid: ids never to emit, such as that of unknown tokens
        return_map: also return the encoder–decoder attention, maps of (heads, tokens, S)
        on_step: called after each step with the sentences and their new tokens; it may raise

    Returns: one hypothesis per sentence, in the order of the sources
    """

    def most_likely(
        scorer: OutputScorer, features: Tensor, forced: Forced, sentences: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        score, token = scorer.top(features, 1, forced)
        return token, score

    return decode_steps(
        model,
        source,
        source_lengths,
        most_likely,
        limits=limits,
        prefix=prefix,
        forbid=forbid,
        return_map=return_map,
        on_step=on_step,
    )


def decode_steps(
    model: Model,
    source: Tensor,
    source_lengths: Tensor | None,
    choose: Choose,
    *,
    limits: Limits,
    prefix: Sequence[Sequence[int]] | None,
    forbid: Sequence[int],
    return_map: bool,
    on_step: OnStep | None,
) -> list[Hypothesis]:
    """Continue every sentence by one chosen token at a time.

    Args: those of `greedy`, and
        choose: chooses a token of each entry by its features
    """
    nothing = EMPTY._replace(maps={}) if return_map else EMPTY
    found = [nothing] * len(source)
    with evaluating(model), stepping(model, return_map) as (stepper, last_step):
        search = begin(stepper, source, source_lengths, limits=limits, prefix=prefix)
        if search is None:
            return found
        scorer = OutputScorer(model.output, forbidden(forbid, model, source.device))
        state, tokens, history = search.state, search.first, BeamHistory()
        owner = np.arange(len(search.numbers))  # the sentence of each entry of the batch
        unfinished = np.ones(len(owner), dtype=bool)
        totals = np.zeros(len(owner))
        endings: dict[int, Ending] = {}
        while unfinished.any():
            features, state = stepper.step(tokens, state)
            weights = last_step()
            forced = search.forced(owner, len(history))
            tokens, scores = choose(scorer, features, forced, search.numbers[owner])
            tokens = tokens.squeeze(1)
            chosen = tokens.cpu().numpy()
            totals += scores.squeeze(1).cpu().numpy()
            if on_step is not None:
                on_step(search.numbers[owner[unfinished]], chosen[unfinished])
            steps = len(history) + 1
            over = unfinished & ((chosen == EOS) | (search.limits[owner] <= steps))
            for entry in over.nonzero()[0].tolist():
                score = float(totals[entry])
                endings[int(owner[entry])] = Ending(steps, entry, int(chosen[entry]), score)
            unfinished &= ~over
            stay = np.arange(len(owner))
            if unfinished.mean() <= COMPACT_BELOW:
                stay = unfinished.nonzero()[0]
                index = torch.from_numpy(stay).to(source.device)
                state, tokens = state.reorder(index), tokens[index]
                owner, unfinished, totals = owner[stay], unfinished[stay], totals[stay]
            history.append(chosen[stay], stay, weights)
    ends = [endings[sentence] for sentence in range(len(endings))]
    maps = history.maps(ends, search.lengths.tolist()) if return_map else [None] * len(ends)
    for number, end, map in zip(search.numbers, ends, maps, strict=True):
        found[number] = Hypothesis(history.tokens(end), end.score, map)
    return found
