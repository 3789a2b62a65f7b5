"""Rates as they are defined, several references, intervals, and errors that are shown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation import Edit, Rate, confusions, error_rate, exact_match, resampled, worst


def test_one_of_several_references_is_enough():
    assert exact_match(["a", "b", "c"], [["x", "a"], ["b"], ["d"]]).value == pytest.approx(2 / 3)


def test_the_nearest_reference_counts_with_its_own_length():
    rate = error_rate(["K AE T"], [["K AE T S", "B AE"]])
    assert (rate.parts.tolist(), rate.wholes.tolist()) == ([1.0], [4.0])


def test_errors_are_summed_before_they_are_divided():
    rate = error_rate(["a b c d", "x"], [["a b c e"], ["y"]])
    assert rate.value == pytest.approx(2 / 5)  # not the mean of 1/4 and 1


def test_letters_give_the_character_error_rate():
    assert error_rate(["1994-09-28"], [["1994-09-27"]], cut=list).value == pytest.approx(0.1)


def test_an_empty_reference_does_not_divide_by_zero():
    assert error_rate(["", "a"], [[""], ["a"]]).value == 0.0
    assert error_rate([], []).value == 0.0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), min_size=1, max_size=23))
def test_an_interval_holds_its_value_and_stays_within_what_is_possible(pairs):
    parts, wholes = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    rate = Rate(parts, wholes)
    each = parts / wholes
    figure = resampled(rate, samples=200)
    assert each.min() - 1e-9 <= figure.low <= figure.high <= each.max() + 1e-9
    assert figure == resampled(rate, samples=200)
    if len(set(each)) == 1:
        assert figure.low == pytest.approx(figure.high)


def test_the_interval_of_a_share_is_about_that_of_the_normal_distribution():
    right = np.arange(1000) < 300
    figure = resampled(Rate(right.astype(float), np.ones(1000)))
    width = 1.96 * (0.3 * 0.7 / 1000) ** 0.5
    assert figure.low == pytest.approx(0.3 - width, abs=0.004)
    assert figure.high == pytest.approx(0.3 + width, abs=0.004)


def test_the_worst_come_first_and_the_right_ones_not_at_all():
    written, wanted = ["a b", "x y", "a z c d"], [["a b"], ["a b"], ["a b c d"]]
    found = worst(written, wanted, error_rate(written, wanted), count=5)
    assert [mistake.number for mistake in found] == [1, 2]
    assert found[1].wanted == "a b c d"
    assert found[1].rate == pytest.approx(0.25)


def test_confusions_count_what_stands_for_what():
    found = confusions(["IH", "IH AH", "K"], [["AH"], ["AH AH"], ["K T"]])
    assert found == [(Edit("AH", "IH"), 2), (Edit("T", ""), 1)]


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [([["a"]], "references for 1"), (["a", "b"], "lists of one text"), ([["a"], []], "for text 1")],
)
def test_bad_references_are_refused_with_a_sentence(wanted, complaint):
    with pytest.raises(ValueError, match=complaint):
        error_rate(["a", "b"], wanted)
