"""Sampling: the draws follow the model, the cuts cut, and a seed fixes them."""

import pytest
import torch

from regard.data.batch import BOS
from regard.decoding import Limits, greedy, sample
from tests.decoding.every_model import EVERY, close, log_probability, model_of, sources

LENGTHS = [7, 3, 5, 1, 2]
SHORT = Limits(ratio=1.0, extra=4)
ONE = Limits(ratio=0.0, extra=1)


def first_draws(model, **options) -> torch.Tensor:
    """How often each token came first in 2,000 draws for one source."""
    source, _ = sources([5])
    found = sample(model, source.expand(2000, -1), limits=ONE, **options)
    return torch.bincount(torch.tensor([h.tokens[0] for h in found]), minlength=11) / 2000


def chances(model) -> torch.Tensor:
    source, _ = sources([5])
    logits = model.output(model.decode(model.encode(source), torch.tensor([[BOS]])))[0, 0]
    logits[:2] = -torch.inf
    return logits.softmax(-1).detach()


@EVERY
def test_the_score_is_the_models_own_log_probability(name):
    model = model_of(name)
    source, lengths = sources(LENGTHS)
    found = sample(model, source, lengths, temperature=0.7, top_k=5, seed=1, limits=SHORT)
    for row, n, hypothesis in zip(source, LENGTHS, found, strict=True):
        assert close(hypothesis.score, log_probability(model, row[:n], hypothesis.tokens))


@EVERY
def test_the_rest_of_the_batch_changes_nothing(name):
    model = model_of(name)
    source, lengths = sources([7, 1, 5, 2])
    lengths[1] = 0
    together = sample(model, source, lengths, seed=5, limits=SHORT)
    for number, n in ((0, 7), (2, 5), (3, 2)):
        one = source[number : number + 1, :n]
        (alone,) = sample(model, one, seed=5, numbers=[number], limits=SHORT)
        assert alone.tokens == together[number].tokens


def test_draws_follow_the_model():
    model = model_of("luong").eval()
    torch.testing.assert_close(first_draws(model).double(), chances(model), atol=0.04, rtol=0.0)


def test_temperature_divides_the_logits():
    model = model_of("luong").eval()
    sharp = chances(model) ** 2
    expected = sharp / sharp.sum()
    found = first_draws(model, temperature=0.5).double()
    torch.testing.assert_close(found, expected, atol=0.04, rtol=0.0)


def test_top_k_leaves_the_likeliest():
    model = model_of("luong").eval()
    found = first_draws(model, top_k=3)
    assert set(found.nonzero().flatten().tolist()) == set(chances(model).topk(3).indices.tolist())


def test_top_p_leaves_the_smallest_set_that_has_the_share():
    model = model_of("luong").eval()
    values, tokens = chances(model).sort(descending=True)
    share = float(values[:3].sum()) - 1e-6  # the third is needed for it, the fourth is not
    found = first_draws(model, top_p=share)
    assert set(found.nonzero().flatten().tolist()) == set(tokens[:3].tolist())


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1},
        {"top_p": 1e-9},
        {"temperature": 1e-6},
        {"temperature": 1e-320, "top_p": 0.5, "top_k": 1},
    ],
)
def test_nothing_left_to_chance_is_greedy_search(options):
    model = model_of("transformer")
    source, lengths = sources(LENGTHS)
    found = sample(model, source, lengths, limits=SHORT, **options)
    expected = greedy(model, source, lengths, limits=SHORT)
    assert [h.tokens for h in found] == [h.tokens for h in expected]


def test_a_seed_fixes_the_draws_and_another_changes_them():
    model = model_of("luong", ends=-3.0)
    source, lengths = sources(LENGTHS)
    one, same, other = (sample(model, source, lengths, seed=s, limits=SHORT) for s in (1, 1, 2))
    assert one == same
    assert [h.tokens for h in one] != [h.tokens for h in other]


def test_two_sentences_that_are_alike_are_drawn_apart():
    model = model_of("luong", ends=-3.0)
    source, _ = sources([7])
    one, other = sample(model, source.expand(2, -1))
    assert one.tokens != other.tokens


def test_a_prefix_is_respected():
    model = model_of("luong")
    found = sample(model, *sources([5, 3]), prefix=[[7, 3], []], limits=SHORT)
    assert found[0].tokens[:2] == (7, 3)


def test_a_model_that_never_ends_is_stopped():
    (found,) = sample(model_of("luong", ends=-1e9), *sources([3]), limits=SHORT)
    assert len(found.tokens) == 7


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"temperature": 0.0}, "above 0, got 0.0; 0 is greedy"),
        ({"top_k": 0}, "1 or more"),
        ({"top_p": 0.0}, "above 0 and at most 1"),
        ({"seed": -1}, "should be 0 or more"),
        ({"numbers": [1]}, "should be 2"),
    ],
)
def test_bad_arguments_raise_a_helpful_error(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        sample(model_of("luong"), *sources([5, 3]), **options)
