"""Alignments: extracted, scored as Och & Ney do, and the head that makes them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.analysis import (
    Gold,
    alignment_error,
    links,
    rank_heads,
    read_pharaoh,
    shifted,
)

pairs = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)))


def test_links_are_the_best_source_of_each_target():
    weights = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.0, 0.0, 0.0]])
    assert links(weights) == {(1, 0), (0, 1)}
    assert links(weights, threshold=0.25) == {(1, 0), (0, 1), (1, 1)}
    assert links(torch.zeros(0, 3)) == frozenset()
    with pytest.raises(ValueError, match="one map"):
        links(torch.zeros(2, 3, 5))


def test_the_error_rate_is_that_of_a_hand_computed_example():
    # S = {00, 11}, P = S + {12, 22}; A = {00, 12, 21}: |A∩S| = 1, |A∩P| = 2, |A| = 3, |S| = 2
    gold = read_pharaoh(["0-0 1-1 1?2 2?2"])
    error, precision, recall = alignment_error([{(0, 0), (1, 2), (2, 1)}], gold)
    assert error == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert precision == pytest.approx(2 / 3)
    assert recall == pytest.approx(1 / 2)


def test_a_corpus_is_scored_as_one():
    gold = read_pharaoh(["0-0", "0-0 1-1 2-2"])
    found = [{(1, 1)}, {(0, 0), (1, 1), (2, 2)}]
    assert alignment_error(found, gold).error == pytest.approx(1 - 6 / 8)
    with pytest.raises(ValueError, match="1 alignments for 2"):
        alignment_error(found[:1], gold)


@given(pairs, pairs, pairs)
def test_the_error_rate_lies_between_zero_and_one(answer, sure, more):
    gold = Gold(sure, sure | more)
    error, precision, recall = alignment_error([answer], [gold])
    assert 0.0 <= error <= 1.0
    assert 0.0 <= precision <= 1.0
    assert 0.0 <= recall <= 1.0
    assert alignment_error([sure], [gold]).error == 0.0


def test_nothing_found_where_nothing_is_sure_is_no_error():
    assert alignment_error([set()], [Gold(frozenset(), frozenset())]).error == 0.0


def diagonal(size: int, off: int = 0) -> torch.Tensor:
    """Row i looks at key i − off."""
    return shifted(torch.eye(size), -off)


def test_the_best_head_comes_first_and_a_shift_is_found():
    gold = read_pharaoh(["0-0 1-1 2-2 3-3 4-4"] * 2)
    uniform = torch.full((5, 5), 0.2)
    maps = {"a": torch.stack([uniform, diagonal(5)]), "b": diagonal(5, off=1)[None]}
    ranked = rank_heads([maps, maps], gold)
    assert [(each.name, each.head) for each in ranked] == [("a", 1), ("b", 0), ("a", 0)]
    assert ranked[0].score.error == 0.0
    assert ranked[0].shift == 0
    assert ranked[1].shift == 1
    assert ranked[1].score.precision == 1.0


def test_a_map_that_is_a_step_off_is_detected():
    gold = read_pharaoh(["0-0 1-1 2-2 3-3 4-4"])
    for off in (-1, 0, 1):
        maps = {"a": shifted(torch.eye(5), -off)[None]}
        assert rank_heads([maps], gold, shifts=(-1, 0, 1))[0].shift == off
    with pytest.raises(ValueError, match="0 sentences"):
        rank_heads([], [])


def test_a_shifted_map_has_rows_of_zeros_where_none_are_left():
    weights = torch.arange(6.0).view(3, 2)
    assert shifted(weights, 1).tolist() == [[2, 3], [4, 5], [0, 0]]
    assert shifted(weights, -1).tolist() == [[0, 0], [0, 1], [2, 3]]
    assert shifted(weights, 5).tolist() == [[0, 0]] * 3
    assert torch.equal(shifted(weights, 0), weights)
