"""Many sentences in batches of about one length: the answers stay in order."""

import sys
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding import Limits, batched, beam, greedy, sample
from regard.decoding.batched import by_length, padded
from tests.decoding.every_model import SOURCE, TARGET, model_of

SHORT = Limits(ratio=1.0, extra=3)


def texts(count: int) -> list[list[int]]:
    draw = np.random.default_rng(1)
    return [draw.integers(4, SOURCE, draw.integers(0, 9)).tolist() for _ in range(count)]


@pytest.mark.parametrize("search", [greedy, partial(beam, size=3, n_best=2), sample])
def test_answers_do_not_depend_on_the_batches(search):
    model, sources = model_of("luong"), texts(23)
    one = batched(search, model, sources, sentences=1, limits=SHORT)
    many = batched(search, model, sources, sentences=7, tokens=31, limits=SHORT)
    first = [[h.tokens for h in (a if isinstance(a, list) else [a])] for a in one]
    assert first == [[h.tokens for h in (a if isinstance(a, list) else [a])] for a in many]
    assert [not any(tokens) for tokens in first] == [not source for source in sources]


def test_prefixes_stay_with_their_sentences():
    model, sources = model_of("transformer"), texts(11)
    prefix = [[3 + n % (TARGET - 3)] for n in range(11)]
    found = batched(greedy, model, sources, sentences=3, prefix=prefix, limits=SHORT)
    for own, source, hypothesis in zip(prefix, sources, found, strict=True):
        assert hypothesis.tokens[:1] == (tuple(own) if source else ())


@given(st.lists(st.integers(0, 23), max_size=31), st.integers(1, 7), st.integers(1, 53))
def test_every_sentence_is_in_one_batch_and_batches_keep_their_size(lengths, sentences, tokens):
    batches = list(by_length(lengths, sentences, tokens))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        own = [lengths[i] for i in batch]
        assert len(batch) == 1 or len(batch) * max(own) <= tokens
        assert len(batch) <= sentences
        assert own == sorted(own, reverse=True)


def test_frames_are_padded_with_zeros():
    source, lengths = padded([np.ones((2, 3), np.float32), np.ones((5, 3), np.float32)])
    assert source.shape == (2, 5, 3)
    assert lengths.tolist() == [2, 5]
    assert source.sum(dim=(1, 2)).tolist() == [6.0, 15.0]
    assert source.dtype == torch.float32


def test_no_sources_give_no_answers():
    assert batched(greedy, model_of("luong"), []) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sentences": 0}, "sentences and tokens should be 1 or more"),
        ({"prefix": [[5]]}, "should be 2 lists"),
    ],
)
def test_bad_arguments_raise_a_helpful_error(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        batched(greedy, model_of("luong"), [[5], [7]], **options)
    with pytest.raises(ValueError, match="frames of one width"):
        padded([[5], np.ones((2, 3))])


def test_large_beams_go_in_smaller_batches(monkeypatch):
    monkeypatch.setattr(sys.modules["regard.decoding.batched"], "MAX_ENTRIES", 8)
    batches = []

    def search(model, source, lengths, *, size):
        batches.append(len(source))
        return [[size] for _ in source]

    found = batched(search, model_of("luong"), [[5, 7]] * 5, size=3)
    assert found == [[3]] * 5
    assert batches == [2, 2, 1]
