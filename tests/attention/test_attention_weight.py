"""The textbook halves of attention: weights from scores, and the sum that they weigh."""

import math

import pytest
import torch
from torch import Tensor

import regard


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def test_the_first_textbook_half_takes_symbolic_masks() -> None:
    scores = numbers(3, 2, 5, 7)
    mask = regard.causal() & regard.lengths(torch.tensor([7, 3, 0]))
    seen = mask.dense(5, 7, leading=2).expand(3, 2, 5, 7)
    truth = torch.softmax(scores.masked_fill(~seen, -math.inf), -1).nan_to_num(0.0)
    torch.testing.assert_close(regard.attention_weight(scores, mask), truth)


def test_the_two_textbook_halves_make_attend() -> None:
    query, key, value = numbers(2, 3, 5), numbers(2, 7, 5, seed=1), numbers(2, 7, 11, seed=2)
    weights = regard.attention_weight(regard.ScaledDot()(query, key), regard.causal())
    context = regard.weighted_sum(weights, value)
    torch.testing.assert_close(context, regard.attend(query, key, value, mask=regard.causal()))


def test_scores_and_masks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scores should be \(..., M, N\), got shape \(7,\)"):
        regard.attention_weight(torch.zeros(7))
    with pytest.raises(
        ValueError, match=r"mask of shape \(7, 5\) does not fit 5 queries and 7 keys"
    ):
        regard.attention_weight(torch.zeros(5, 7), torch.ones(7, 5, dtype=torch.bool))
    with pytest.raises(
        ValueError, match=r"lengths\(keys\(3,\)\) does not fit a map of shape \(2, 5, 7\)"
    ):
        regard.attention_weight(torch.zeros(2, 5, 7), regard.lengths([1, 2, 3]))
    with pytest.raises(
        ValueError, match=r"weights \(5, 7\) are for 7 values, but value \(5, 3\) has 5"
    ):
        regard.weighted_sum(torch.zeros(5, 7), torch.zeros(5, 3))
