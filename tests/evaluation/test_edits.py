"""Edits against Levenshtein's recursion written out, and as they are defined."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation import Edit, distance, edits

texts = st.text("abc", max_size=7)


def longhand(a: str, b: str) -> int:
    @cache
    def d(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return d(len(a), len(b))


@given(texts, texts)
def test_the_distance_is_that_of_the_recursion(a, b):
    assert distance(a, b) == longhand(a, b)


@given(texts, texts, texts)
def test_the_distance_is_a_distance(a, b, c):
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, c) <= distance(a, b) + distance(b, c)


@given(texts, texts)
def test_there_are_as_many_edits_as_the_distance_and_they_account_for_every_letter(a, b):
    found = edits(a, b)
    assert len(found) == distance(a, b)
    assert all(edit.reference != edit.prediction for edit in found)
    lost, new = (
        [e.reference for e in found if e.reference],
        [e.prediction for e in found if e.prediction],
    )
    assert sorted([*a, *lost]) == sorted([*b, *new])


def test_edits_are_in_order():
    assert edits("sitting", "kitten") == [Edit("k", "s"), Edit("e", "i"), Edit("", "g")]
    assert edits([], ["a", "b"]) == [Edit("a", ""), Edit("b", "")]


def test_words_are_compared_as_words():
    assert distance(["a", "cat", "sat"], ["a", "dog", "sat", "down"]) == 2
