from hypothesis import given
from hypothesis import strategies as st

from regard.data.similar import SimilarPairs

sequences = st.lists(st.integers(4, 6), min_size=1, max_size=6).map(tuple)
collections = st.lists(st.tuples(sequences, sequences), max_size=60)


def beginning(a, b):
    return max(n for n in range(len(a) + 1) if b[:n] == a[:n])


@given(collections, sequences)
def test_no_other_source_has_more_in_common_and_of_several_none_is_as_short(pairs, source):
    others = {known for known, _ in pairs} - {source}
    found = list(SimilarPairs(pairs).find(source))
    assert [match.step for match in found] == ([1, -1] if others else [])
    for step, best, shared in found:
        lengths = {known: beginning(source[::step], known[::step]) for known in others}
        assert best in others
        assert shared == lengths[best] == max(lengths.values())
        if sum(length == shared for length in lengths.values()) <= 10:  # all of them are compared
            tied = [known for known, length in lengths.items() if length == shared]
            assert len(best) == min(map(len, tied))


@given(collections, sequences, st.lists(sequences, max_size=5))
def test_agreement_is_the_share_in_common_times_what_is_written_alike(pairs, source, targets):
    similar = SimilarPairs(pairs)
    expected = [0.0] * len(targets)
    for step, best, shared in similar.find(source):
        written = [target for known, target in pairs if known == best]
        for place, target in enumerate(targets):
            alike = max(beginning(target[::step], known[::step]) for known in written)
            expected[place] += shared / len(source) * alike
    assert similar.agreement(source, targets) == expected


def test_empty_sources_are_left_out_and_an_empty_one_has_no_agreement():
    assert not list(SimilarPairs([((), (4,))]).find((4,)))
    assert SimilarPairs([]).agreement((4,), [(5,)]) == [0]
    assert SimilarPairs([((4, 5), (6,))]).agreement((), [(6,)]) == [0]
