"""Beam search: the likeliest continuations of every sentence, several at a time."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.attention import observer
from regard.data.batch import EOS
from regard.decoding.greedy import CROWD
from regard.decoding.hypothesis import EMPTY, Hypothesis, longer
from regard.decoding.limits import Limits
from regard.decoding.places import keeping_places, without
from regard.decoding.scores import Reader
from regard.decoding.search import Model, Search, begin, evaluating, forbidden
from regard.decoding.trail import Ending, Trail
from regard.layers.moves import Moves


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
) -> list[list[Hypothesis]]:
    """Keep the `size` likeliest beginnings of every sentence, and continue them all.

    Hypotheses that end are set aside. A sentence is done when `size` of them have ended, when
    none that goes on could still be among the best, or at its limit. They are sorted by

        score / ((5 + length) / 6)^penalty

    Wu et al. 2016, section 7, eq. 14, without its coverage. A `size` of 1 is greedy search.

    >>> from regard.models import build
    >>> model = build("luong", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> found = beam(model, torch.randint(4, 13, (2, 5)), size=3, n_best=2)
    >>> [len(hypotheses) for hypotheses in found]
    [2, 2]

    Args:
        model: with `encode`, `start`, `step` and `output`
        source: ids (batch, S) or frames (batch, S, width)
        source_lengths: (batch,), all S if None; a source of length 0 becomes no tokens at all
        size: beginnings kept
        n_best: hypotheses to return, `size` at most; there are fewer if there are no more
        penalty: the exponent above; 0 sorts by log-probability
        limits: how long an output may become
        prefix: ids that each output must begin with, one list a sentence
        forbid: ids never to be emitted, such as that of unknown tokens
        return_map: also stitch the weights of every step to maps of (heads, tokens, S)

    Returns: of each source its hypotheses, the best first
    """
    _check(size, n_best, penalty)
    nothing = EMPTY._replace(maps={}) if return_map else EMPTY
    found = [[nothing] for _ in range(len(source))]
    with evaluating(model):
        search = begin(
            model, source, source_lengths, limits=limits, prefix=prefix, return_map=return_map
        )
        if search is None:
            return found
        read = Reader(model.output, forbidden(forbid, model, source.device))
        trail, endings = _searched(model, search, read, size, n_best, penalty)
    for own in endings:
        own.sort(key=lambda end: -end.score / longer(end.steps, penalty))
        del own[n_best:]
    flat = [end for own in endings for end in own]
    lengths = np.repeat(search.lengths, list(map(len, endings))).tolist()
    maps = iter(trail.maps(flat, lengths) if return_map else [None] * len(flat))
    for number, own in zip(search.numbers, endings, strict=True):
        found[number] = [Hypothesis(trail.tokens(end), end.score, next(maps)) for end in own]
    return found


def _searched(
    model: Model, search: Search, read: Reader, size: int, n_best: int, penalty: float
) -> tuple[Trail, list[list[Ending]]]:
    """All steps: the trail, and where the hypotheses of each sentence end."""
    trail = Trail()
    state, tokens = search.state, search.first
    owner = np.arange(len(search.numbers))  # the sentence of each group of beams
    working = np.ones(len(owner), dtype=bool)  # of each group
    totals = np.zeros((len(owner), 1))  # log-probability of each beam; the first step has one
    endings: list[list[Ending]] = [[] for _ in owner]
    bound = [longer(int(limit), penalty) for limit in search.limits]  # what length gives at most
    while working.any():
        features, state = model.step(tokens, state)
        steps, beams = len(trail) + 1, totals.shape[1]
        forced = search.forced(np.repeat(owner, beams), steps - 1)
        scores, parents, chosen = _candidates(
            *read.top(features, 2 * size, forced), totals, 2 * size
        )  # (groups, candidates) each, the best first
        last = search.limits[owner] <= steps
        ends = (scores > -np.inf) & ((chosen == EOS) | last[:, None])
        ends[:, size:] = False  # a hypothesis ends while it is among the best
        for group, place in zip(*ends.nonzero(), strict=True):
            entry = int(group * beams + parents[group, place])
            token, score = int(chosen[group, place]), float(scores[group, place])
            endings[owner[group]].append(Ending(steps, entry, token, score))
        scores[chosen == EOS] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :size]
        totals, parents, chosen = (_at(order, t) for t in (scores, parents, chosen))
        working &= ~last & (totals[:, 0] > -np.inf)
        for group in working.nonzero()[0]:
            own = endings[owner[group]]
            hope = totals[group, 0] / bound[owner[group]]
            working[group] = not _settled(own, hope, size, n_best, penalty)
        totals[~working] = -np.inf
        stay = np.arange(len(owner))
        if working.mean() <= CROWD:
            stay = without(~working)
        place = keeping_places(parents, beams)
        totals, parents, chosen = (_at(place, t)[stay] for t in (totals, parents, chosen))
        owner, working = owner[stay], working[stay]
        entries = (stay[:, None] * beams + parents).reshape(-1)
        trail.step(chosen.reshape(-1), entries, state.weights)
        if state.weights is not None:
            state = state._replace(weights={})
        tokens = torch.from_numpy(chosen.reshape(-1)).to(tokens.device)
        index = torch.from_numpy(entries).to(tokens.device)
        state = state.reorder(Moves(index, len(features), spent=not observer.observing))
    return trail, endings


def _settled(own: list[Ending], hope: float, size: int, n_best: int, penalty: float) -> bool:
    """Whether the best of these endings stay the best, whatever those that go on become.

    Args:
        hope: the most that one that goes on can rank
    """
    if len(own) < n_best:
        return False
    if len(own) >= size:
        return True
    ranked = sorted((end.score / longer(end.steps, penalty) for end in own), reverse=True)
    return ranked[n_best - 1] >= hope


def _at(order: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Each row of an array in its own order."""
    return np.take_along_axis(array, order, 1)


def _candidates(
    best: Tensor, ids: Tensor, totals: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The likeliest continuations of each sentence, the best first.

    Args:
        best: log-probabilities of the likeliest tokens of each beam, (sentences · beams, n)
        ids: those tokens
        totals: of the beams so far, (sentences, beams)
        count: how many

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
    if size < 1:
        raise ValueError(f"a beam has size 1 or more, got {size}")
    if not 1 <= n_best <= size:
        raise ValueError(f"n_best should be from 1 to the beam's size, {size}, got {n_best}")
    if penalty < 0:
        raise ValueError(f"penalty should be 0 or more, got {penalty}")
