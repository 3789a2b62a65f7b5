"""Beam search against exhaustive search, greedy search, and the model's own log-probability."""

import pytest
import torch

from regard.data.batch import BOS, EOS
from regard.decoding import Limits, beam, greedy
from regard.decoding.search import Hypothesis, length_penalty
from tests.decoding.every_model import (
    EVERY,
    all_texts,
    close,
    log_probabilities,
    log_probability,
    model_of,
    sources,
)
from tests.recorded import recorded

LENGTHS = [7, 3, 5, 1, 2]
SHORT = Limits(ratio=1.0, extra=4)


@EVERY
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_of_one_is_greedy_search(name, penalty):
    model = model_of(name)
    source, lengths = sources(LENGTHS)
    found = beam(model, source, lengths, size=1, penalty=penalty, limits=SHORT)
    for (best,), expected in zip(found, greedy(model, source, lengths, limits=SHORT), strict=True):
        assert best.tokens == expected.tokens
        assert close(best.score, expected.score)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("penalty", [0.0, 0.6])
def test_a_beam_that_is_large_enough_finds_the_best_of_all_texts(name, penalty):
    model = model_of(name, target=6)
    source, lengths = sources([3, 2])
    texts = all_texts(6, longest=4)
    limits = Limits(ratio=0.0, extra=4)
    found = beam(model, source, lengths, size=3**4, n_best=5, penalty=penalty, limits=limits)
    for row, n, hypotheses in zip(source, [3, 2], found, strict=True):
        all_scores = log_probabilities(model, row[:n], texts)

        def ranked(text, scores=all_scores):
            return scores[text] / ((5 + len(text)) / 6) ** penalty

        expected = sorted(texts, key=ranked, reverse=True)[:5]
        assert [hypothesis.tokens for hypothesis in hypotheses] == expected
        for hypothesis in hypotheses:
            assert close(hypothesis.score, all_scores[hypothesis.tokens])
            assert close(hypothesis.ranked(penalty), ranked(hypothesis.tokens))


@EVERY
def test_scores_and_maps_are_the_models_own(name):
    model = model_of(name, ends=0.0).eval()
    source, lengths = sources(LENGTHS)
    found = beam(model, source, lengths, size=5, n_best=3, limits=SHORT, return_map=True)
    lookups = 0
    for row, n, hypotheses in zip(source, LENGTHS, found, strict=True):
        for hypothesis in hypotheses:
            assert close(hypothesis.score, log_probability(model, row[:n], hypothesis.tokens))
            inputs = torch.tensor([[BOS, *hypothesis.tokens[:-1]]])
            memory = model.encode(row[None, :n])
            _, maps = recorded(model, lambda: model.decode(memory, inputs))  # noqa: B023
            for key, map in hypothesis.maps.items():
                torch.testing.assert_close(map, maps[key][0])
                lookups += 1
    assert lookups or name in ("plain", "peeky")


@EVERY
def test_the_best_are_sorted_and_distinct(name):
    model = model_of(name)
    source, lengths = sources(LENGTHS)
    for hypotheses in beam(model, source, lengths, size=7, n_best=7, penalty=0.8, limits=SHORT):
        ranks = [hypothesis.ranked(0.8) for hypothesis in hypotheses]
        assert ranks == sorted(ranks, reverse=True)
        assert len({hypothesis.tokens for hypothesis in hypotheses}) == len(hypotheses) == 7


@EVERY
def test_the_rest_of_the_batch_changes_nothing(name):
    model = model_of(name)
    source, lengths = sources(LENGTHS)
    together = beam(model, source, lengths, size=3, n_best=2, limits=SHORT, return_map=True)
    for number, n in enumerate(LENGTHS):
        (alone,) = beam(
            model, source[number : number + 1, :n], size=3, n_best=2, limits=SHORT, return_map=True
        )
        for one, other in zip(alone, together[number], strict=True):
            assert one.tokens == other.tokens
            assert close(one.score, other.score)
            for key, map in one.maps.items():
                torch.testing.assert_close(map, other.maps[key])


@EVERY
def test_a_model_that_never_ends_is_stopped_at_the_limit(name):
    model = model_of(name, ends=-1e9)
    limits = Limits(ratio=2.0, extra=1)
    found = beam(model, *sources([5, 2]), size=3, n_best=3, limits=limits)
    assert [[len(h.tokens) for h in hypotheses] for hypotheses in found] == [[11] * 3, [5] * 3]


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_a_prefix_is_respected_by_all_hypotheses(name):
    model = model_of(name, target=6)
    source, lengths = sources([3, 2, 2])
    prefix = [[4], [], [5, 3]]
    limits = Limits(ratio=0.0, extra=4)
    found = beam(
        model, source, lengths, size=3**4, n_best=3, penalty=0.0, prefix=prefix, limits=limits
    )
    for row, n, own, hypotheses in zip(source, [3, 2, 2], prefix, found, strict=True):
        texts = [text for text in all_texts(6, 4) if list(text[: len(own)]) == own]
        scores = log_probabilities(model, row[:n], texts)
        assert [h.tokens for h in hypotheses] == sorted(texts, key=scores.get, reverse=True)[:3]


def test_a_forbidden_token_may_be_in_a_prefix_and_nowhere_else():
    model = model_of("luong", target=6)
    found = beam(model, *sources([3]), size=5, n_best=5, prefix=[[4, 4]], forbid=[4], limits=SHORT)
    for hypothesis in found[0]:
        assert hypothesis.tokens[:2] == (4, 4)
        assert 4 not in hypothesis.tokens[2:]
        assert hypothesis.score > -torch.inf


def test_there_are_fewer_hypotheses_if_there_are_no_more_texts():
    model = model_of("luong", target=4)
    (found,) = beam(model, *sources([3]), size=11, n_best=11, limits=Limits(ratio=0.0, extra=2))
    assert {hypothesis.tokens for hypothesis in found} == {(EOS,), (3, EOS), (3, 3)}


def test_a_larger_penalty_prefers_longer_outputs():
    model = model_of("gnmt", ends=0.0)
    counts = []
    for penalty in (0.0, 3.0):
        found = beam(model, *sources([7, 5, 6, 3, 2, 7]), size=7, penalty=penalty, limits=SHORT)
        counts.append(sum(len(best.tokens) for best, *_ in found))
    assert counts[0] < counts[1]


def test_an_empty_source_becomes_an_empty_output():
    model = model_of("bahdanau")
    source, _ = sources([3, 3])
    found = beam(model, source, torch.tensor([0, 3]), size=3, n_best=2)
    assert found[0] == [Hypothesis((), 0.0)]
    assert len(found[1]) == 2
    assert beam(model, source, torch.tensor([0, 0])) == [[Hypothesis((), 0.0)]] * 2


def test_the_penalty_is_that_of_the_paper():
    assert length_penalty(7, 0.6) == pytest.approx(12**0.6 / 6**0.6)
    assert Hypothesis((5, 7, 2), -3.0).ranked(0.0) == -3.0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"size": 0}, "beam size should be from 1 to 1024, got 0"),
        ({"size": 100_000}, "beam size should be from 1 to 1024, got 100000"),
        ({"size": 3, "n_best": 4}, "from 1 to the beam size, 3, got 4"),
        ({"n_best": 0}, "n_best should be from 1"),
        ({"penalty": -1.0}, "0 or more"),
    ],
)
def test_bad_arguments_raise_a_helpful_error(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        beam(model_of("luong"), *sources([5, 3]), **options)
