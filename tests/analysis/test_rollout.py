"""Attention rollout multiplies the layers, each with the way around it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.analysis import rollout


def weights(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(-1)


def test_rollout_is_the_product_written_out():
    first, second = weights(2, 3, 3), weights(5, 3, 3, seed=1)
    seen = [[0.0] * 3 for _ in range(3)]
    for i in range(3):
        for k in range(3):
            for j in range(3):
                upper = 0.5 * float(second[:, i, j].mean()) + 0.5 * (i == j)
                lower = 0.5 * float(first[:, j, k].mean()) + 0.5 * (j == k)
                seen[i][k] += upper * lower
    assert torch.allclose(rollout([first, second]), torch.tensor(seen, dtype=torch.float64))


@given(st.integers(1, 4), st.integers(1, 7), st.integers(0, 999), st.floats(0.0, 1.0))
def test_rows_of_a_rollout_sum_to_one(layers, size, seed, residual):
    maps = [weights(2, size, size, seed=seed + layer) for layer in range(layers)]
    total = rollout(maps, residual=residual).sum(-1)
    assert torch.allclose(total, torch.ones(size, dtype=torch.float64))


def test_without_a_residual_it_is_the_plain_product_and_with_nothing_else_the_identity():
    first, second = weights(1, 5, 5), weights(1, 5, 5, seed=1)
    assert torch.allclose(rollout([first, second], residual=0.0), second[0] @ first[0])
    assert torch.equal(rollout([first], residual=1.0), torch.eye(5, dtype=torch.float64))


def test_a_query_that_saw_nothing_keeps_itself():
    map = torch.tensor([[[0.0, 0.0], [0.5, 0.5]]])
    assert rollout([map], residual=0.0)[0].tolist() == [1.0, 0.0]
    assert rollout([map])[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("layers", "complaint"),
    [([], "one layer or more"), ([torch.eye(3)], "layer 0"), ([weights(1, 3, 5)], "layer 0")],
)
def test_what_cannot_be_followed_is_an_error(layers, complaint):
    with pytest.raises(ValueError, match=complaint):
        rollout(layers)
