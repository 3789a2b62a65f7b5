"""The counted lexicon, and the words of sentences that meet."""

import numpy as np
import pytest
import torch

from benchmarks.pairs import Lexicon, _stem, _threshold, _words, meetings
from regard.core.map import AttentionMap
from regard.data import train_tokenizer
from regard.trace import Call, Trace


def test_the_lexicon_prefers_sentences_with_the_words_that_translate_each_other():
    pairs = [
        ("나 책", "i book"),
        ("나 물", "i water"),
        ("너 책", "you book"),
        ("너 물", "you water"),
    ]
    left, right = (train_tokenizer("words", side) for side in zip(*pairs, strict=True))
    lexicon = Lexicon(pairs * 5, left, right)
    book, water = (right.ids[word] for word in (" book", " water"))
    assert lexicon.there[left.ids[" 책"], book] > 0.9
    assert lexicon.there[left.ids[" 책"], water] < 0.05
    assert lexicon.score(("나 책", "i book")) > lexicon.score(("나 책", "you book"))
    assert lexicon.score(("나 책", "you book")) > lexicon.score(("나 책", "you water"))


def test_the_threshold_separates_best():
    scores, labels = np.array([0.1, 0.4, 0.3, 0.9]), np.array([0, 1, 0, 1])
    assert _threshold(scores, labels) == 0.4


def test_the_weight_of_a_word_is_that_of_the_pieces_of_its_stem():
    words = _words(["▁영", "어", "를", "▁봐", "."])
    assert words == [[(0, "▁영"), (1, "어"), (2, "를")], [(3, "▁봐")], [(4, ".")]]
    assert _stem(words[0], "영어") == [0, 1]

    class Predictor:
        def trace(self, pair):
            # 영 and 어 look at English, 를 elsewhere
            weights = torch.tensor([[0.1, 0.5, 0.4], [0.3, 0.2, 0.5], [1.0, 0.0, 0.0]])
            call = Call("left", AttentionMap.of(weights[None]), "left", "right")
            tokens = {"left": ["▁영", "어", "를"], "right": ["▁See", "▁En", "glish"]}
            return Trace([call], tokens)

    (found,) = meetings(Predictor(), ("영어를", "See English"))
    assert found.weight == pytest.approx((0.5 + 0.4 + 0.2 + 0.5) / 2)
    assert found.flat == pytest.approx(2 / 3)
    assert found.most
