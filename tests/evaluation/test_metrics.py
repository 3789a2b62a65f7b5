"""Metrics against their definitions and sacrebleu, with several references and intervals."""

import math

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import collate
from regard.evaluation import (
    Edit,
    Rate,
    bleu,
    bootstrap,
    chrf,
    confusions,
    error_rate,
    exact_match,
    teacher_forced,
    worst,
)
from regard.models import build

PREDICTIONS = ["a man rides a horse .", "two dogs play in the snow", "a child sleeps"]
REFERENCES = [
    ["a man is riding a horse ."],
    ["two dogs are playing in snow", "dogs play in the snow"],
    ["the child sleeps"],
]


def test_one_of_several_references_is_enough():
    assert exact_match(["a", "b", "c"], [["x", "a"], ["b"], ["d"]]).value == pytest.approx(2 / 3)


def test_the_closest_reference_counts_with_its_own_length():
    rate = error_rate(["K AE T"], [["K AE T S", "B AE"]])
    assert (rate.counts.tolist(), rate.totals.tolist()) == ([1.0], [4.0])


def test_errors_are_summed_before_they_are_divided():
    rate = error_rate(["a b c d", "x"], [["a b c e"], ["y"]])
    assert rate.value == pytest.approx(2 / 5)  # not the mean of 1/4 and 1


def test_letters_give_the_character_error_rate():
    assert error_rate(["1994-09-28"], [["1994-09-27"]], split=list).value == pytest.approx(0.1)


def test_an_empty_reference_does_not_divide_by_zero():
    assert error_rate(["", "a"], [[""], ["a"]]).value == 0.0
    assert error_rate([], []).value == 0.0


def test_words_where_there_should_be_none_are_errors():
    rate = error_rate(["a b"], [[""]])
    assert rate.value == 2.0
    assert bootstrap(rate) == (2.0, 2.0, 2.0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), min_size=1, max_size=23))
def test_an_interval_holds_its_value_and_stays_within_what_is_possible(pairs):
    counts, totals = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    rate = Rate(counts, totals)
    each = counts / totals
    metric = bootstrap(rate, samples=200)
    assert each.min() - 1e-9 <= metric.low <= metric.high <= each.max() + 1e-9
    assert metric == bootstrap(rate, samples=200)
    if len(set(each)) == 1:
        assert metric.low == pytest.approx(metric.high)


def test_the_interval_of_a_share_is_about_that_of_the_normal_distribution():
    right = np.arange(1000) < 300
    metric = bootstrap(Rate(right.astype(float), np.ones(1000)))
    width = 1.96 * (0.3 * 0.7 / 1000) ** 0.5
    assert metric.low == pytest.approx(0.3 - width, abs=0.004)
    assert metric.high == pytest.approx(0.3 + width, abs=0.004)


def test_the_worst_come_first_and_exact_predictions_not_at_all():
    found = worst(["a b", "x y", "a z c d"], [["a b"], ["a b"], ["a b c d"]], count=5)
    assert [mistake.number for mistake in found] == [1, 2]
    assert found[1].reference == "a b c d"
    assert found[1].rate == pytest.approx(0.25)


def test_confusions_count_substitutions():
    found = confusions(["IH", "IH AH", "K"], [["AH"], ["AH AH"], ["K T"]])
    assert found == [(Edit("AH", "IH"), 2), (Edit("T", ""), 1)]


def test_corpus_scores_are_those_of_sacrebleu():
    streams = [[r[0] for r in REFERENCES], [r[1] if len(r) > 1 else None for r in REFERENCES]]
    found = bleu(PREDICTIONS, REFERENCES, samples=0)
    assert found.metric.value == pytest.approx(sacrebleu.corpus_bleu(PREDICTIONS, streams).score)
    assert found.signature.startswith("nrefs:")
    assert "tok:13a" in found.signature
    found = chrf(PREDICTIONS, REFERENCES, samples=0)
    assert found.metric.value == pytest.approx(sacrebleu.corpus_chrf(PREDICTIONS, streams).score)


def test_the_interval_is_around_the_corpus_score():
    metric = bleu(PREDICTIONS * 20, REFERENCES * 20, samples=100).metric
    assert 0.0 <= metric.low < metric.value < metric.high <= 100.0


def test_options_are_part_of_the_signature():
    upper = [text.upper() for text in PREDICTIONS]
    assert bleu(upper, REFERENCES, samples=0, lowercase=True).metric.value > 10
    assert "case:lc" in bleu(upper, REFERENCES, samples=0, lowercase=True).signature


@pytest.mark.parametrize("metric", [error_rate, exact_match, bleu, chrf])
@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([["a"]], "2 predictions and references for 1"),
        ([["a"], ["b"], ["c"]], "2 predictions and references for 3"),
        (["a", "b"], "a list of one or more texts"),
        ([["a"], []], "for prediction 1"),
    ],
)
def test_bad_references_are_refused(metric, references, message):
    with pytest.raises(ValueError, match=message):
        metric(["a", "b"], references)


@pytest.mark.parametrize("metric", [error_rate, bleu])
def test_one_string_is_not_a_list_of_texts(metric):
    with pytest.raises(TypeError, match="predictions should be a list"):
        metric("ab", [["a"], ["b"]])
    with pytest.raises(TypeError, match="references should be a list"):
        metric(["a", "b"], "ab")


def test_an_empty_corpus_has_no_score():
    with pytest.raises(ValueError, match="at least one prediction"):
        bleu([], [])


def test_the_likelihood_of_a_batch_is_that_of_its_pairs_alone():
    torch.manual_seed(1)
    model = build("luong", source_vocabulary=13, target_vocabulary=11, embedding=5, hidden=7)
    pairs = [([5, 7, 4], [6, 8]), ([9], [5, 5, 7, 4])]
    together = teacher_forced(model, [collate(pairs)])
    loss = right = 0.0
    model.eval()
    for source, target in pairs:
        inputs, labels = torch.tensor([[1, *target]]), torch.tensor([*target, 2])
        logits = model.output(model(torch.tensor([source]), None, inputs))[0].detach()
        loss -= float(torch.log_softmax(logits, -1)[range(len(labels)), labels].sum())
        right += float((logits.argmax(-1) == labels).sum())
    assert together.tokens == 8
    assert together.loss == pytest.approx(loss / 8, rel=1e-5)
    assert together.accuracy == pytest.approx(right / 8)
    assert together.perplexity == pytest.approx(math.exp(loss / 8), rel=1e-5)
