"""Files of alignments: sure and possible links of both formats, and what is wrong in a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.analysis import Gold, read_alignments, read_naacl, read_pharaoh, write_pharaoh

pairs = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)))


def test_sure_and_possible_links_are_told_apart_in_both_countings():
    zero = read_pharaoh(["0-0 1?2 2p1", ""])
    one = read_pharaoh(["1-1 2?3 3p2", ""], first=1)
    assert zero == one
    assert zero[0].sure == {(0, 0)}
    assert zero[0].possible == {(0, 0), (1, 2), (2, 1)}
    assert zero[1] == Gold(frozenset(), frozenset())
    (swapped,) = read_pharaoh(["0-5"], swap=True)
    assert swapped.sure == {(5, 0)}


@given(pairs, st.sampled_from([0, 1]))
def test_links_survive_writing_and_reading(some, first):
    (gold,) = read_pharaoh([write_pharaoh(some, first=first)], first=first)
    assert gold.sure == gold.possible == some


@pytest.mark.parametrize(
    ("line", "first", "complaint"),
    [
        ("0-0 1:2", 0, "line 1: '1:2' is not a link"),
        ("0-", 0, "is not a link"),
        ("-1-2", 0, "is not a link"),
        ("0-1", 1, "counts from 1"),
        ("0-1", 2, "from 0 or 1"),
    ],
)
def test_a_line_that_is_no_alignment_is_an_error(line, first, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_pharaoh([line], first=first)


GOLD = ["0-0 1?2", "", "2p1 0-1"]
SAME = ["3 1 2", "1 1 1 S", "", "1 2 3 P 0.5", "0003 3 2 P", "1 2 0 S", "1 1 1 P"]


def test_the_naacl_format_has_the_same_links_from_one_in_any_order():
    assert read_naacl(SAME, 3) == read_pharaoh(GOLD)
    assert read_naacl(["1 1 1 0.9"], 1) == read_naacl(["1 1 1 s"], 1) == read_pharaoh(["0-0"])


def test_the_format_is_found_by_the_first_link():
    assert read_alignments(SAME, 3) == read_alignments(GOLD, 3) == read_pharaoh(GOLD)
    assert read_alignments(["", "1-2"], 2, first=1) == read_pharaoh(["", "0-1"])
    with pytest.raises(ValueError, match="each of 4 pairs, got 3 lines"):
        read_alignments(GOLD, 4)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1 2", "line 2: '1 2' is not a link"),
        ("1 2 x S", "is not a link"),
        ("1 2 3 Q", "is not a link"),
        ("4 1 1", "expected a pair from 1 to 3, got 4"),
        ("0 1 1", "expected a pair from 1 to 3, got 0"),
    ],
)
def test_a_line_that_is_no_naacl_link_is_an_error(line, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_naacl(["1 1 1", line], 3)
