"""Beam search: several of the most likely continuations of every sentence at a time."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.attention import observer
from regard.data.batch import EOS
from regard.decoding.beam_slots import BeamHistory, Ending, Weights, assign_slots, fill_gaps
from regard.decoding.greedy import COMPACT_BELOW
from regard.decoding.scores import OutputScorer
from regard.decoding.search import (
    EMPTY,
    Hypothesis,
    Limits,
    Model,
    OnStep,
    Search,
    Stepper,
    begin,
    evaluating,
    forbidden,
    length_penalty,
    stepping,
)
from regard.layers.reorder import BatchReorder

MAX_SIZE = 1024
"""The largest beam: memory grows with it, and quality does not."""


def beam(
    model: Model,
    source: Tensor,
    source_lengths: Tensor | None = None,
    *,
    size: int = 5,
    n_best: int = 1,
    penalty: float = 0.6,
    limits: Limits = Limits(),  # noqa: B008
    prefix: Sequence[Sequence[int]] | None = None,
    forbid: Sequence[int] = (),
    return_map: bool = False,
    on_step: OnStep | None = None,
) -> list[list[Hypothesis]]:
    """Keep the `size` most likely beginnings of every sentence, and continue them all.

    A sentence is finished when `size` hypotheses have ended, when no other could still be among
    the best, or at its length limit. Hypotheses are sorted by

        score / ((5 + length) / 6)^penalty

    Wu et al. 2016, section 7, eq. 14, without the coverage penalty. A `size` of 1 is greedy search.

    >>> from regard.models import build
    >>> model = build("luong", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> found = beam(model, torch.randint(4, 13, (2, 5)), size=3, n_best=2)
    >>> [len(hypotheses) for hypotheses in found]
    [2, 2]

    Args:
        model: with `encode`, `start`, `step` and `output`
        source: ids (batch, S) or frames (batch, S, width)
        source_lengths: (batch,), all S if None; a source of length 0 gives no tokens
        size: number of beams, at most `MAX_SIZE`
        n_best: hypotheses to return, at most `size`; there may be fewer
        penalty: the exponent above; 0 sorts by log-probability
        limits: on the length of outputs
        prefix: ids that each output must begin with, one list per sentence
        forbid: ids never to emit, such as that of unknown tokens
        return_map: also return the encoder–decoder attention, maps of (heads, tokens, S)
        on_step: called after each step with the sentences and their best new tokens; it may raise

    Returns: the hypotheses of each source, the best first
    """
    _check(size, n_best, penalty)
    nothing = EMPTY._replace(maps={}) if return_map else EMPTY
    found = [[nothing] for _ in range(len(source))]
    # a state that no observer keeps may be overwritten; the maps recorded here are copies
    in_place = not observer.observing
    with evaluating(model), stepping(model, return_map) as (stepper, last_step):
        search = begin(stepper, source, source_lengths, limits=limits, prefix=prefix)
        if search is None:
            return found
        scorer = OutputScorer(model.output, forbidden(forbid, model, source.device))
        history, endings = _search(
            stepper,
            search,
            scorer,
            last_step,
            in_place,
            on_step,
            size=size,
            n_best=n_best,
            penalty=penalty,
        )
    for own in endings:
        own.sort(key=lambda end: -end.score / length_penalty(end.steps, penalty))
        del own[n_best:]
    flat = [end for own in endings for end in own]
    lengths = np.repeat(search.lengths, list(map(len, endings))).tolist()
    maps = iter(history.maps(flat, lengths) if return_map else [None] * len(flat))
    for number, own in zip(search.numbers, endings, strict=True):
        found[number] = [Hypothesis(history.tokens(end), end.score, next(maps)) for end in own]
    return found


def _search(
    model: Stepper,
    search: Search,
    scorer: OutputScorer,
    last_step: Callable[[], Weights | None],
    in_place: bool,
    on_step: OnStep | None,
    *,
    size: int,
    n_best: int,
    penalty: float,
) -> tuple[BeamHistory, list[list[Ending]]]:
    """All steps: their history, and the ends of the hypotheses of each sentence."""
    history = BeamHistory()
    state, tokens = search.state, search.first
    owner = np.arange(len(search.numbers))  # the sentence of each group of beams
    unfinished = np.ones(len(owner), dtype=bool)  # of each group
    totals = np.zeros((len(owner), 1))  # log-probability of each beam; the first step has one
    endings: list[list[Ending]] = [[] for _ in owner]
    bound = [
        length_penalty(int(limit), penalty) for limit in search.limits
    ]  # the largest length penalty
    while unfinished.any():
        features, state = model.step(tokens, state)
        weights = last_step()
        steps, beams = len(history) + 1, totals.shape[1]
        forced = search.forced(np.repeat(owner, beams), steps - 1)
        scores, parents, chosen = _candidates(
            *scorer.top(features, 2 * size, forced), totals, 2 * size
        )  # (groups, candidates) each, the best first
        if on_step is not None:
            on_step(search.numbers[owner], chosen[:, 0])
        last = search.limits[owner] <= steps
        ends = (scores > -np.inf) & ((chosen == EOS) | last[:, None])
        ends[:, size:] = False  # a hypothesis may end only while it is among the best
        for group, place in zip(*ends.nonzero(), strict=True):
            entry = int(group * beams + parents[group, place])
            token, score = int(chosen[group, place]), float(scores[group, place])
            endings[owner[group]].append(Ending(steps, entry, token, score))
        scores[chosen == EOS] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :size]
        totals, parents, chosen = (_at(order, t) for t in (scores, parents, chosen))
        unfinished &= ~last & (totals[:, 0] > -np.inf)
        for group in unfinished.nonzero()[0]:
            own = endings[owner[group]]
            best = totals[group, 0] / bound[owner[group]]
            unfinished[group] = not _decided(own, best, size, n_best, penalty)
        totals[~unfinished] = -np.inf
        stay = np.arange(len(owner))
        if unfinished.mean() <= COMPACT_BELOW:
            stay = fill_gaps(~unfinished)
        slots = assign_slots(parents, beams)
        totals, parents, chosen = (_at(slots, t)[stay] for t in (totals, parents, chosen))
        owner, unfinished = owner[stay], unfinished[stay]
        entries = (stay[:, None] * beams + parents).reshape(-1)
        history.append(chosen.reshape(-1), entries, weights)
        tokens = torch.from_numpy(chosen.reshape(-1)).to(tokens.device)
        index = torch.from_numpy(entries).to(tokens.device)
        state = state.reorder(BatchReorder(index, len(features), in_place=in_place))
    return history, endings


def _decided(own: list[Ending], best: float, size: int, n_best: int, penalty: float) -> bool:
    """Whether the best of these endings stay the best, however the others continue.

    Args:
        best: an upper bound of the ranked score of the others
    """
    if len(own) < n_best:
        return False
    if len(own) >= size:
        return True
    ranked = sorted((end.score / length_penalty(end.steps, penalty) for end in own), reverse=True)
    return ranked[n_best - 1] >= best


def _at(order: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Each row of an array in its own order, (rows, n)."""
    return np.take_along_axis(array, order, 1)


def _candidates(
    best: Tensor, ids: Tensor, totals: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The most likely continuations of each sentence, the best first.

    Args:
        best: log-probabilities of the most likely tokens of each beam, (sentences · beams, n)
        ids: those tokens
        totals: log-probabilities of the beams so far, (sentences, beams)
        count: number of continuations

    Returns: log-probabilities, beams and tokens, (sentences, count) each
    """
    sentences, beams = totals.shape
    width = best.shape[1]
    each = best.cpu().numpy().reshape(sentences, beams, width)
    sums = (each + totals[..., None]).reshape(sentences, -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, :count]
    tokens = ids.cpu().numpy().reshape(sentences, -1)
    return (
        np.take_along_axis(sums, order, 1),
        order // width,
        np.take_along_axis(tokens, order, 1),
    )


def _check(size: int, n_best: int, penalty: float) -> None:
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"beam size should be from 1 to {MAX_SIZE}, got {size}")
    if not 1 <= n_best <= size:
        raise ValueError(f"n_best should be from 1 to the beam size, {size}, got {n_best}")
    if penalty < 0:
        raise ValueError(f"penalty should be 0 or more, got {penalty}")
