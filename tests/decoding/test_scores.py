"""The likeliest tokens of large vocabularies, against torch's own sorting and normalizing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard.decoding.scores import BLOCK, OutputScorer, Scores


@given(
    st.integers(1, 5),
    st.sampled_from([7, 127, 128, 1031, 4999, 5041]),
    st.integers(1, 23),
    st.integers(0, 99),
)
def test_the_best_are_those_of_a_whole_sort(entries, vocabulary, count, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(entries, vocabulary, generator=generator, dtype=torch.double)
    logits[:, :2] = -torch.inf
    log_sum = torch.logsumexp(logits, 1, keepdim=True)
    best, tokens = Scores(logits, log_sum).top(count)
    expected, places = torch.log_softmax(logits, 1).topk(min(count, vocabulary))
    real = expected > -torch.inf
    torch.testing.assert_close(best, expected)
    assert torch.equal(tokens[real], places[real])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("entries", [3, 37])
def test_scores_are_log_probabilities_whatever_is_banned(bias, entries):
    output = nn.Linear(5, 1031, bias=bias).double()
    with torch.no_grad():
        output.weight[7] += 50.0  # far above the others, and banned
    features = torch.randn(entries, 5, dtype=torch.double)
    with torch.inference_mode():
        scores = OutputScorer(output, torch.tensor([0, 7]))(features)
        expected = torch.log_softmax(output(features), 1)
        tokens = torch.tensor([[1, 1030], [5, 2], [3, 3]]).repeat(13, 1)[:entries]
        torch.testing.assert_close(scores.of(tokens), expected.gather(1, tokens))
    assert (scores.logits[:, [0, 7]] == -torch.inf).all()
    assert not (scores.logits[:, 1:7] == -torch.inf).any()


@pytest.mark.parametrize("entries", [BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_the_best_of_many_entries_are_those_of_each(entries):
    output = nn.Linear(5, 1031).double()
    features = torch.randn(entries, 5, dtype=torch.double)
    with torch.inference_mode():
        best, tokens = OutputScorer(output, torch.tensor([0, 7])).top(features, 3)
        logits = output(features)
        logits[:, [0, 7]] = -torch.inf
        places = logits.topk(3)[1]
        expected = torch.log_softmax(output(features), 1).gather(1, places)
    assert torch.equal(tokens, places)
    torch.testing.assert_close(best, expected)


def test_a_forced_token_is_the_only_one_even_if_it_is_banned():
    output = nn.Linear(5, 11)
    features = torch.randn(3, 5)
    with torch.inference_mode():
        forced = torch.tensor([2, 0]), torch.tensor([7, 4])
        scores = OutputScorer(output, torch.tensor([0, 7]))(features, forced)
        best, tokens = scores.top(2)
        expected = torch.log_softmax(output(features).double(), 1)
    assert tokens[[2, 0], 0].tolist() == [7, 4]
    assert best[[2, 0], 1].tolist() == [-torch.inf, -torch.inf]
    assert best[1, 1] > -torch.inf
    torch.testing.assert_close(best[2, 0], expected[2, 7], atol=1e-5, rtol=1e-5)


def test_the_same_memory_serves_fewer_entries_later():
    output = nn.Linear(5, 11)
    with torch.inference_mode():
        read = OutputScorer(output, torch.tensor([0]))
        for entries in (3, 7, 2):
            features = torch.randn(entries, 5)
            expected = torch.log_softmax(output(features).double(), 1)[:, 1:]
            found = read(features)
            all_but_one = torch.arange(1, 11).expand(entries, -1)
            torch.testing.assert_close(found.of(all_but_one), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("entries", [1, 15, 16, 50, 130])
def test_the_scorer_finds_the_most_likely_tokens_of_any_number_of_entries(bias, entries):
    output = nn.Linear(5, 203, bias=bias).double()
    with torch.inference_mode():
        features = torch.randn(entries, 5, dtype=torch.float64)
        expected = torch.log_softmax(output(features), 1)
        expected[:, [0, 1]] = -torch.inf
        best, tokens = OutputScorer(output, torch.tensor([0, 1])).top(features, 4)
    assert torch.equal(tokens, expected.topk(4).indices)
    torch.testing.assert_close(best, expected.topk(4).values)
