"""Pieces become words: keys are summed, queries are averaged."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.analysis import by_words, merge_words, word_groups, word_labels
from regard.trace import Call, Trace


@pytest.mark.parametrize(
    ("tokens", "groups", "words"),
    [
        (["[CLS]", "un", "##tie", "it"], [0, 1, 1, 2], ["[CLS]", "untie", "it"]),
        (["▁un", "tie", "▁it", "</s>"], [0, 0, 1, 2], ["untie", "it", "</s>"]),
        (["Un", "tie", "Ġit"], [0, 0, 1], ["Untie", "it"]),
        (["<s>", "Un", "tie", "Ġit"], [0, 1, 1, 2], ["<s>", "Untie", "it"]),
        (["un@@", "tie", "it"], [0, 0, 1], ["untie", "it"]),
        (["un", "tie", "it"], [0, 1, 2], ["un", "tie", "it"]),
        ([], [], []),
    ],
)  # fmt: skip
def test_words_are_found_by_the_marks_of_the_tokenizer(tokens, groups, words):
    assert word_groups(tokens) == groups
    assert word_labels(tokens, groups) == words


def test_keys_are_summed_and_queries_are_averaged():
    W = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).softmax(-1)
    merged = merge_words(W, [0, 1, 1], [0, 0, 1, 2, 2])
    assert merged.shape == (2, 2, 3)
    expected = ((W[1, 1, 3] + W[1, 1, 4]) + (W[1, 2, 3] + W[1, 2, 4])) / 2
    assert float(merged[1, 1, 2]) == pytest.approx(float(expected))
    assert float(merged[0, 0, 0]) == pytest.approx(float(W[0, 0, 0] + W[0, 0, 1]))


@given(
    st.lists(st.booleans(), min_size=1, max_size=7), st.lists(st.booleans(), min_size=1, max_size=7)
)
def test_rows_keep_their_sum(queries, keys):
    def groups(begins):
        return [sum(begins[1 : i + 1]) for i in range(len(begins))]

    W = torch.rand(3, len(queries), len(keys)).double().softmax(-1)
    merged = merge_words(W, groups(queries), groups(keys))
    assert torch.allclose(merged.sum(-1), torch.ones((), dtype=torch.float64))


def test_words_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match="3 queries and 5 keys, got 2 and 5"):
        merge_words(torch.zeros(3, 5), [0, 1], [0] * 5)


def test_a_trace_is_merged_to_words_on_both_sides():
    W = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).softmax(-1)
    source, target = ["▁a", "▁b", "c", "d", "▁e"], ["▁x", "y", "▁z"]
    words = by_words(Trace.of_maps({"cross": W}, queries=target, keys=source, text="a"))
    assert words.tokens == {"target": ["xy", "z"], "source": ["a", "bcd", "e"]}
    assert words.about == {"text": "a", "words": True}
    expected = merge_words(W, [0, 0, 1], [0, 1, 1, 1, 2])
    assert torch.equal(words["cross"].map.dense(), expected)
    bare = by_words(Trace([Call("cross", W)], {"source": source}))
    assert bare["cross"].shape == (2, 3, 3)


def test_a_batch_and_some_rows_are_not_merged():
    W = torch.full((2, 3, 3), 1 / 3)
    with pytest.raises(ValueError, match="one example"):
        by_words(Trace([Call("self", W[None])]))
    some = Trace.of_maps({"self": W}, queries=list("abc")).select(rows=slice(0, 2))
    with pytest.raises(ValueError, match="no whole words"):
        by_words(some)
