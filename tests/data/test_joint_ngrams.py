import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import joint_ngrams
from regard.data.joint_ngrams import LEFT_OVER, JointNgrams, _by_shape

ids = st.lists(st.integers(0, 5), max_size=6).map(tuple)
pairs = st.tuples(ids, ids)


@pytest.fixture(autouse=True)
def small_table(monkeypatch):
    monkeypatch.setattr(joint_ngrams, "BUCKETS", 2**12)


def segmentations(source, target):
    """All ways of writing each source id as 0, 1 or 2 target ids, as lists of pieces."""
    for sizes in product(range(3), repeat=len(source)):
        if sum(sizes) == len(target):
            ends = np.cumsum(sizes).tolist()
            zipped = zip(source, sizes, ends, strict=True)
            yield [(one, *target[end - size : end]) for one, size, end in zipped]


def bucket(model, piece):
    written = 0
    for number in piece[1:]:
        written = written * model._base + number + 1
    return (piece[0] * model._base**2 + written) % joint_ngrams.BUCKETS


@settings(deadline=None)
@given(st.lists(pairs, max_size=8), st.lists(pairs, max_size=4))
def test_pieces_are_the_pair_in_order(known, new):
    for (source, target), pieces in zip(new, JointNgrams(known).align(new), strict=True):
        aligned = [piece for piece in pieces if piece[0] != LEFT_OVER]
        assert tuple(piece[0] for piece in aligned) == source
        assert all(len(piece) <= 3 for piece in aligned)
        assert tuple(number for piece in pieces for number in piece[1:]) == target
        assert len(pieces) - len(aligned) == max(0, len(target) - 2 * len(source))


@settings(deadline=None)
@given(st.lists(pairs, min_size=1, max_size=8), pairs)
def test_no_other_segmentation_is_more_likely(known, new):
    source, target = new[0], new[1][: 2 * len(new[0])]
    model = JointNgrams(known)

    def likelihood(pieces):
        return sum(model._logarithms[bucket(model, piece)] for piece in pieces)

    (found,) = model.align([(source, target)])
    expected = max(map(likelihood, segmentations(source, target)))
    assert likelihood(found) == pytest.approx(expected)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=3), st.integers(0, 99))
def test_expected_counts_are_those_of_all_segmentations(some, seed):
    model = JointNgrams([((5,), (5,))])
    weights = np.random.default_rng(seed).random(joint_ngrams.BUCKETS) + 0.1
    counts, expected = np.zeros(len(weights)), np.zeros(len(weights))
    for group in _by_shape(some):
        model._count(group, weights, counts)
    for source, target in some:
        possible = list(segmentations(source, target[: 2 * len(source)]))
        chances = [math.prod(weights[bucket(model, p)] for p in pieces) for pieces in possible]
        for pieces, chance in zip(possible, chances, strict=True):
            for piece in pieces:
                expected[bucket(model, piece)] += chance / sum(chances)
    np.testing.assert_allclose(counts, expected, rtol=1e-9, atol=1e-12)


def test_letters_are_aligned_with_what_they_are_written_as():
    words = {
        "phone": "F|OW|N",
        "photo": "F|OW|T|OW",
        "hop": "H|AA|P",
        "hat": "H|AE|T",
        "ox": "AA|K|S",
    }
    words |= {"pot": "P|AA|T", "tap": "T|AE|P", "box": "B|AA|K|S", "bat": "B|AE|T", "pan": "P|AE|N"}
    sounds = sorted({sound for written in words.values() for sound in written.split("|")})
    encode = {
        word: (tuple(map(ord, word)), tuple(map(sounds.index, written.split("|"))))
        for word, written in words.items()
    }
    model = JointNgrams(encode.values())
    box, phone = (
        [[sounds[number] for number in piece[1:]] for piece in pieces]
        for pieces in model.align([encode["box"], encode["phone"]])
    )
    assert box == [["B"], ["AA"], ["K", "S"]]
    assert phone == [["F"], [], ["OW"], ["N"], []]


def test_long_pairs_do_not_underflow():
    long = (tuple(range(5)) * 80, tuple(range(5)) * 80)
    model = JointNgrams([long, ((0, 1), (0, 1))])
    (pieces,) = model.align([long])
    assert pieces == [(number, number) for number in long[0]]
    assert math.isfinite(*model.log_probabilities([long]))


def test_ids_that_were_never_seen_are_aligned_too():
    model = JointNgrams([((1, 2), (1, 2))])
    seen, new = model.log_probabilities([((1, 2), (1, 2)), ((1, 10**6), (1, 10**6))])
    assert -math.inf < new < seen


def test_pieces_are_learned_from_a_sample_and_ngrams_counted_of_all_pairs(monkeypatch):
    monkeypatch.setattr(joint_ngrams, "SAMPLE", 2)
    some = [((1, 2), (1, 2)), ((3, 3), (3, 3)), ((2, 1), (2, 1)), ((1, 1), (1, 1))]
    model = JointNgrams(some)
    known, new = model.log_probabilities([some[1], ((3, 4), (3, 4))])
    assert known > new


def test_empty_pairs_and_no_pairs():
    assert JointNgrams([]).align([((), ()), ((), (7,)), ((7,), ())]) == [
        [],
        [(LEFT_OVER, 7)],
        [(7,)],
    ]
    assert JointNgrams([((), ())]).log_probabilities([]) == []
