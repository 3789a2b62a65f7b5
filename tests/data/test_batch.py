import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import Batches, collate, read_dataset, train_tokenizers
from regard.data import batch as batch_module
from regard.data.batch import PooledOrder, permuted

LENGTHS = np.random.default_rng(3).integers(2, 31, size=(503, 2))


def padded(lengths, batch):
    return len(batch) * int(lengths[batch].max(axis=0).sum())


@given(
    st.lists(st.tuples(st.integers(1, 13), st.integers(2, 13)), min_size=1, max_size=97),
    st.integers(26, 211),
    st.integers(0, 5),
    st.booleans(),
)
def test_each_pair_is_in_one_batch_and_no_batch_is_too_large(pairs, tokens, epoch, shuffle):
    lengths = np.array(pairs)
    order = Batches(lengths, tokens=tokens, seed=7, shuffle=shuffle).order(epoch)
    assert sorted(i for batch in order for i in batch) == list(range(len(lengths)))
    assert all(batch and padded(lengths, batch) <= tokens for batch in order)


@given(st.integers(1, 101))
def test_a_batch_of_sentences_has_that_many_and_the_rest_comes_once(sentences):
    sizes = [len(batch) for batch in Batches(LENGTHS, sentences=sentences).order(0)]
    rest = len(LENGTHS) % sentences
    assert sorted(sizes) == sorted([sentences] * (len(LENGTHS) // sentences) + [rest] * bool(rest))


def test_the_order_depends_on_seed_and_epoch_alone():
    batches = Batches(LENGTHS, tokens=401, seed=5)
    late = list(batches.order(7))
    for epoch in range(7):
        batches.order(epoch)
    assert list(batches.order(7)) == late == list(Batches(LENGTHS, tokens=401, seed=5).order(7))
    assert list(batches.order(6)) != late
    assert list(Batches(LENGTHS, tokens=401, seed=6).order(7)) != late


def test_a_pool_of_one_batch_mixes_pairs_of_all_lengths():
    """Each batch is then a part of the shuffled pairs as they come."""
    batches = Batches(LENGTHS, sentences=7, seed=5, pool=1)
    shuffled = np.random.default_rng((5, 3)).permutation(len(LENGTHS))
    parts = {frozenset(shuffled[i : i + 7].tolist()) for i in range(0, len(LENGTHS), 7)}
    assert {frozenset(batch) for batch in batches.order(3)} == parts
    with pytest.raises(ValueError, match="pool must be at least 1, got 0"):
        Batches(LENGTHS, sentences=7, pool=0)


def test_any_batch_is_reached_by_its_position():
    order = Batches(LENGTHS, tokens=401).order(2)
    walked = list(order)
    assert [order[i] for i in (0, 5, -1)] == [walked[0], walked[5], walked[-1]]
    assert order[3:7] == walked[3:7]
    with pytest.raises(IndexError):
        order[len(order)]


def test_batches_change_their_company_from_epoch_to_epoch():
    batches = Batches(np.repeat(LENGTHS, 31, axis=0), tokens=401)
    first, second = ({frozenset(b) for b in batches.order(epoch)} for epoch in (0, 1))
    assert len(first & second) < len(first) / 10


def test_batches_do_not_come_sorted_by_length():
    widths = [LENGTHS[batch].max() for batch in Batches(LENGTHS, tokens=401).order(0)]
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.5


def test_without_shuffling_every_epoch_is_the_same():
    batches = Batches(LENGTHS, tokens=401, shuffle=False)
    assert list(batches.order(0)) == list(batches.order(3))


@pytest.mark.parametrize("size", [{"tokens": 2048}, {"tokens": 4096}, {"sentences": 128}])
def test_padding_is_under_a_tenth_on_multi30k(real_data, size):
    pairs = read_dataset("multi30k", folder=real_data)
    source, target = train_tokenizers(pairs[:2000], "words", "words")
    rows = [(len(source.encode(s)), len(target.encode(t)) + 2) for s, t in pairs]
    lengths = np.array(rows)
    held = sum(padded(lengths, batch) for batch in Batches(lengths, **size).order(1))
    assert 1 - lengths.sum() / held < 0.1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "either tokens or sentences"),
        ({"tokens": 5, "sentences": 3}, "either tokens or sentences"),
        ({"tokens": 59}, "more than the tokens=59"),
        ({"sentences": 0}, "at least 1"),
        ({"sentences": 3, "seed": -1}, "negative"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(arguments, complaint):
    lengths = np.concatenate([LENGTHS, [[30, 30]]])
    with pytest.raises(ValueError, match=complaint):
        Batches(lengths, **arguments)


def test_lengths_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(n, 2\).*got \(5,\)"):
        Batches(np.arange(5), sentences=2)


def test_collate_pads_and_adds_begin_and_end():
    batch = collate([(np.array([5, 6, 7]), [8]), ([9], [])], index=[11, 3])
    assert batch.source.tolist() == [[5, 6, 7], [9, 0, 0]]
    assert batch.target.tolist() == [[1, 8, 2], [1, 2, 0]]
    assert batch.source_lengths.tolist() == [3, 1]
    assert batch.target_lengths.tolist() == [3, 2]
    assert batch.index.tolist() == [11, 3]
    assert {tensor.dtype for tensor in batch} == {torch.int64}


def test_collate_pads_frames_with_zeros():
    frames = [np.ones((n, 5), np.float32) for n in (2, 3)]
    batch = collate([(frames[0], [7]), (frames[1], [8])])
    assert batch.source.shape == (2, 3, 5)
    assert batch.source.dtype == torch.float32
    assert batch.source.sum((1, 2)).tolist() == [10, 15]


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="at least one pair"):
        collate([])


@pytest.mark.parametrize("size", [1, 2, 3, 64, 65, 1000])
def test_a_permutation_by_formula_has_every_position_once(size):
    found = permuted(np.arange(size), size, (7, 3))
    assert sorted(found.tolist()) == list(range(size))
    parts = [permuted(np.arange(size)[start::3], size, (7, 3)) for start in range(3)]
    assert all((part == found[start::3]).all() for start, part in enumerate(parts))
    if size == 1000:
        other = permuted(np.arange(size), size, (7, 4))
        assert (found != other).mean() > 0.9
        assert abs(np.corrcoef(np.arange(size), found)[0, 1]) < 0.1


@pytest.mark.parametrize("size", [{"tokens": 401}, {"sentences": 11}])
def test_the_order_of_a_large_corpus_has_every_pair_once_in_batches_of_like_length(
    monkeypatch, size
):
    monkeypatch.setattr(batch_module, "LARGE", 100)
    monkeypatch.setattr(batch_module, "POOL", 5)
    batches = Batches(LENGTHS, **size, seed=5)
    order = batches.order(2)
    assert isinstance(order, PooledOrder)
    assert sorted(i for batch in order for i in batch) == list(range(len(LENGTHS)))
    assert [order[i] for i in (3, 0, -1)] == [list(order)[i] for i in (3, 0, -1)]
    assert list(batches.order(2)) == list(order) != list(batches.order(3))
    if "tokens" in size:
        assert all(padded(LENGTHS, batch) <= 401 for batch in order)
    spread = np.mean([np.ptp(LENGTHS[batch, 1]) for batch in order])
    assert spread < np.ptp(LENGTHS[:, 1]) / 4
