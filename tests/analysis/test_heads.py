"""The numbers about heads, against their formulas written out longhand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.analysis import (
    HeadSums,
    diagnose,
    diagonality,
    entropy,
    offset_share,
    redundancy,
    rollout,
    similarity,
    sink_mass,
)
from regard.trace import Trace


def weights(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(-1)


maps = st.builds(
    lambda h, m, n, seed: weights(h, m, n, seed=seed),
    st.integers(2, 5), st.integers(1, 7), st.integers(1, 7), st.integers(0, 1000),
)  # fmt: skip


def test_entropy_is_the_mean_over_rows_of_minus_w_log_w():
    W = weights(3, 5, 7)
    for head in range(3):
        rows = [-sum(float(w) * math.log(w) for w in row) for row in W[head]]
        assert entropy(W)[head] == pytest.approx(sum(rows) / 5)


def test_queries_that_attend_to_nothing_do_not_count():
    W = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    assert float(entropy(W)) == pytest.approx(math.log(2))
    assert float(sink_mass(W)) == pytest.approx(0.5)
    assert float(entropy(torch.zeros(3, 5))) == 0.0


@given(maps)
def test_entropy_lies_between_one_key_and_all_of_them(W):
    assert bool((entropy(W) >= 0).all())
    assert bool((entropy(W) <= math.log(W.shape[-1]) + 1e-9).all())


def test_sink_mass_is_the_weight_of_some_keys():
    W = weights(3, 5, 7)
    expected = sum(float(W[1, i, 0] + W[1, i, 6]) for i in range(5)) / 5
    assert float(sink_mass(W, [0, -1])[1]) == pytest.approx(expected)
    assert float(sink_mass(W, [6, -1])[1]) == pytest.approx(float(W[1, :, 6].mean()))
    with pytest.raises(ValueError, match="there are 7 keys"):
        sink_mass(W, [7])


def test_diagonality_is_one_minus_the_distance_relative_to_chance():
    W = weights(3, 5)
    away = chance = 0.0
    for i in range(3):
        for j in range(5):
            distance = abs((i + 0.5) / 3 - (j + 0.5) / 5)
            away += float(W[i, j]) * distance
            chance += distance / 5
    assert float(diagonality(W)) == pytest.approx(1 - away / chance)
    assert float(diagonality(torch.eye(5).flip(-1))) < 0
    assert float(diagonality(torch.ones(1, 1))) == 1.0


@given(maps)
def test_no_map_is_more_diagonal_than_the_diagonal(W):
    assert bool((diagonality(W) <= 1 + 1e-9).all())


def test_shares_of_neighbours_are_means_of_the_side_diagonals():
    W = weights(5, 5)
    assert float(offset_share(W, -1)) == pytest.approx(
        sum(float(W[i, i - 1]) for i in range(1, 5)) / 4
    )
    assert float(offset_share(W, 1)) == pytest.approx(sum(float(W[i, i + 1]) for i in range(4)) / 4)
    wide = weights(2, 3, 7)
    expected = sum(float(wide[1, i, i + 5]) for i in range(2)) / 2
    assert float(offset_share(wide, 5)[1]) == pytest.approx(expected)
    assert offset_share(wide, 9).tolist() == [0.0, 0.0]
    assert float(offset_share(torch.ones(1, 1), -1)) == 0.0


def test_similarity_is_one_minus_jensen_shannon_in_bits():
    W = weights(3, 5, 7)
    total = 0.0
    for a, b in zip(W[0], W[2], strict=True):
        middle = (a + b) / 2
        total += 0.5 * float((a * (a / middle).log()).sum() + (b * (b / middle).log()).sum())
    assert float(similarity(W)[0, 2]) == pytest.approx(1 - total / 5 / math.log(2))


@given(maps)
def test_similarity_is_symmetric_and_one_with_itself(W):
    found = similarity(W)
    assert torch.allclose(found, found.T)
    assert torch.allclose(found.diagonal(), torch.ones(len(W), dtype=torch.float64))
    assert bool((found >= -1e-9).all())
    assert torch.equal(redundancy(W), found.fill_diagonal_(-1).amax(-1))


def test_what_cannot_be_compared_is_an_error():
    with pytest.raises(ValueError, match="2 or more"):
        redundancy(weights(1, 3, 5))
    with pytest.raises(ValueError, match=r"\(heads, M, N\)"):
        similarity(weights(3, 5))


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (torch.tensor([[float("nan"), 1.0]]), "NaN"),
        (torch.tensor([[0.9, 0.9]]), "largest sum 1.8"),
        (torch.tensor([[-0.5, 1.0]]), "smallest is -0.5"),
        (torch.tensor([1.0]), r"\(\.\.\., M, N\)"),
    ],
)
def test_what_is_no_attention_is_an_error(bad, complaint):
    with pytest.raises(ValueError, match=complaint):
        entropy(bad)


def test_diagnostics_are_a_row_for_each_head():
    one, two = weights(3, 5, 5), weights(1, 5, 5, seed=1)
    trace = Trace.of_maps({"one": one, "two": two}, queries=list("abcde"))
    rows = diagnose(trace, sinks=[0, 4, 99])
    assert [(row.name, row.head) for row in rows] == [
        ("one", 0),
        ("one", 1),
        ("one", 2),
        ("two", 0),
    ]
    assert rows[1].entropy == pytest.approx(float(entropy(one)[1]))
    assert rows[1].sink == pytest.approx(float(sink_mass(one, [0, 4])[1]))
    assert rows[2].redundancy == pytest.approx(float(redundancy(one)[2]))
    assert rows[3].redundancy == 0.0


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


def test_statistics_of_rows_in_blocks_are_those_of_the_whole_map():
    W = weights(3, 11, 7)
    W[1, 4] = 0.0
    sums = HeadSums(W.shape, sinks=(0, -1), offsets=(-2, 3))
    for start in range(0, 11, 4):
        sums.add(W[:, start : start + 4])
    assert torch.allclose(sums.entropy, entropy(W))
    assert torch.allclose(sums.sink, sink_mass(W, (0, -1)))
    assert torch.allclose(sums.diagonality, diagonality(W))
    for offset in (-2, 3):
        assert torch.allclose(sums.share(offset), offset_share(W, offset))
