"""The text that the others agree with, against sacrebleu's chrF."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

from regard.evaluation import consensus

WORDS = st.lists(st.sampled_from(["the", "cat", "mat", "sat", "고양이", "잔다", "🙂"]), max_size=5)


@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=7))
@settings(max_examples=60, deadline=None)
def test_it_has_the_highest_mean_chrf_to_all_texts(texts: list[str]) -> None:
    chrf = CHRF()

    def mean(text: str) -> float:
        scores = [chrf.sentence_score(text, [other]).score for other in texts]
        return sum(scores) / len(texts)

    best = max(map(mean, texts))
    assert mean(texts[consensus(texts)]) == pytest.approx(best, abs=1e-6)


def test_a_repeated_text_counts_as_often_as_it_occurs() -> None:
    assert consensus(["abc", "xyz", "xyz"]) == 1
    assert consensus(["abc", "abc", "xyz"]) == 0


def test_it_needs_a_text() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        consensus([])
    assert consensus([""]) == 0
