"""A map as its largest weights, its entropy, a small picture, a graph."""

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import regard
from regard.core.map import AttentionMap
from tests.core.map.maps import B, D, E, H, M, N, a_map, inputs, numbers


def test_topk_are_the_largest_weights_and_their_keys() -> None:
    map = a_map(B, H)
    values, indices = map.topk(3)
    assert values.shape == indices.shape == (B, H, M, 3)
    truth = map.dense().sort(dim=-1, descending=True)
    torch.testing.assert_close(values, truth.values[..., :3])
    assert torch.equal(indices, truth.indices[..., :3])
    assert map.topk(N + 5).values.shape == (B, H, M, N)
    assert map.topk(0).values.shape == (B, H, M, 0)
    with pytest.raises(ValueError, match="a number of keys from 0, got -1"):
        map.topk(-1)


def test_entropy_is_in_nats() -> None:
    map = a_map(B, H, mask=regard.causal())
    found = map.entropy()
    assert found.shape == (B, H, M)
    for row, value in zip(map.dense().view(-1, N).tolist(), found.flatten().tolist(), strict=True):
        assert value == pytest.approx(-sum(w * math.log(w) for w in row if w > 0))


def test_entropy_is_zero_for_one_key_and_log_n_for_all() -> None:
    torch.testing.assert_close(
        regard.attend(
            torch.zeros(M, D), torch.zeros(N, D), torch.zeros(N, E), return_map=True
        ).map.entropy(),
        torch.full((M,), math.log(N)),
    )
    assert torch.count_nonzero(a_map(normalize="hard").entropy()) == 0
    blind = a_map(B, mask=regard.lengths([0, N])).entropy()
    assert torch.count_nonzero(blind[0]) == 0
    assert bool((blind[1] > 0).all())


@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "entmax15", "hard"])
def test_entropy_has_finite_gradients_where_weights_are_zero(normalize: str) -> None:
    q, k, v = inputs(grad=True)
    map = regard.attend(
        q * 9, k, v, normalize=normalize, mask=regard.window(1, 0), return_map=True
    ).map
    gradients = torch.autograd.grad(map.entropy().sum(), (q, k))
    assert all(torch.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_entropy_of_many_small_half_precision_weights_is_right(dtype: torch.dtype) -> None:
    key = torch.zeros(65536, 1, dtype=dtype)
    map = regard.attend(key[:1], key, key, return_map=True).map
    assert float(map.entropy()) == pytest.approx(math.log(65536), rel=0.01)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize("leading", [(), (B, H)])
def test_pooled_is_adaptive_max_pooling(size: int, leading: tuple[int, ...]) -> None:
    map = a_map(*leading)
    height, width = min(size, M), min(size, N)
    truth = F.adaptive_max_pool2d(map.dense().view(1, -1, M, N), (height, width))
    torch.testing.assert_close(map.pooled(size), truth.view(*leading, height, width))


@pytest.mark.parametrize(("queries", "keys"), [(64, 96), (67, 101)])
def test_a_single_spike_survives_pooling(queries: int, keys: int) -> None:
    query, key = torch.zeros(queries, 1), torch.zeros(keys, 1)
    for i, j in ((0, 0), (37, 55), (queries - 1, keys - 1)):
        bias = torch.zeros(queries, keys)
        bias[i, j] = 30.0
        map = regard.attend(query, key, key, bias=bias, return_map=True).map
        pooled = map.pooled(16)
        assert pooled.shape == (16, 16)
        assert float(pooled[i * 16 // queries, j * 16 // keys]) == pytest.approx(1, abs=1e-6)
        assert int((pooled > 0.5).sum()) <= 4  # bins overlap where they do not divide


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_maps_can_be_looked_at_in_every_way(dtype: torch.dtype) -> None:
    q, k, v = (t.to(dtype) for t in inputs(B))
    map = regard.attend(q, k, v, return_map=True).map
    dense = map.dense()
    assert dense.dtype == dtype
    truth = F.adaptive_max_pool2d(dense.float(), 3)
    torch.testing.assert_close(map.pooled(3).float(), truth)
    assert torch.equal(map.topk(1).values, dense.amax(-1, keepdim=True))
    assert map.edges(top_k=2).weight.shape == (B * M * 2,)


def test_pooled_needs_a_size() -> None:
    with pytest.raises(ValueError, match="a size of at least 1, got 0"):
        a_map().pooled(0)


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_an_empty_map_can_be_looked_at_in_every_way(queries: int, keys: int) -> None:
    q, k = torch.zeros(B, queries, D), torch.zeros(B, keys, D)
    map = regard.attend(q, k, k, return_map=True).map
    assert map.dense().shape == map.scores.dense().shape == (B, queries, keys)
    assert map.topk(3).values.shape == (B, queries, min(3, keys))
    assert map.entropy().shape == (B, queries)
    assert map.pooled(3).shape == (B, min(3, queries), min(3, keys))
    assert map.edges().weight.shape == (0,)


@pytest.mark.parametrize("leading", [(), (B,), (B, H)])
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax"])
def test_values_summed_over_edges_are_the_output(leading: tuple[int, ...], normalize: str) -> None:
    q, k, v = inputs(*leading)
    mask = regard.window(3, 1)
    output, map = regard.attend(q, k, v, mask=mask, normalize=normalize, return_map=True)
    query, key, weight = map.edges()
    assert bool((weight > 0).all())
    assert len(weight) == int((map.dense() > 0).sum())
    nodes = v.reshape(-1, E)  # key j of map b is node b · N + j
    summed = torch.zeros(output.numel() // E, E, dtype=v.dtype)
    summed.index_add_(0, query, weight[:, None] * nodes[key])
    torch.testing.assert_close(summed.view_as(output), output)


def test_edges_may_be_the_strongest_of_each_query() -> None:
    map = a_map(B)
    query, key, weight = map.edges(top_k=2)
    values, indices = map.topk(2)
    assert query.tolist() == [b * M + i for b in range(B) for i in range(M) for _ in range(2)]
    assert torch.equal(key, (indices + N * torch.arange(B)[:, None, None]).flatten())
    torch.testing.assert_close(weight, values.flatten())
    assert (
        len(a_map(normalize="hard").edges(top_k=3).weight) == M
    )  # an edge has a weight above zero


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("grad", [False, True])
def test_a_copy_or_a_pickle_of_a_map_has_its_numbers(copied: Any, grad: bool) -> None:
    lazy = regard.attend(*inputs(B, H, grad=grad), return_map=True, mask=regard.causal()).map
    other, scores = copied(lazy), copied(lazy.scores)
    assert torch.equal(other.dense(), lazy.dense())
    assert torch.equal(other.scores[..., 1:3, :], lazy.scores[..., 1:3, :])
    assert torch.equal(scores.dense(), lazy.scores.dense())
    assert other.entropy().shape == (B, H, M)
    assert not other.dense().requires_grad


def test_a_map_without_scores_can_be_pickled() -> None:
    lazy = AttentionMap.of(numbers(B, M, N))
    other = pickle.loads(pickle.dumps(lazy))
    assert torch.equal(other.dense(), lazy.dense())
    with pytest.raises(ValueError, match="not made from scores"):
        _ = other.scores
