"""The lazy map: any index, never more rows than asked for, and the map that made the output."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.core import blocks
from regard.core.map import AttentionMap

B, H, M, N, D, E = 2, 3, 5, 7, 11, 13


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def inputs(*leading: int, grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((*leading, M, D), (*leading, N, D), (*leading, N, E))
    q, k, v = (numbers(*shape, seed=i).requires_grad_(grad) for i, shape in enumerate(shapes))
    return q, k, v


def a_map(*leading: int, **more: Any) -> AttentionMap:
    return regard.attend(*inputs(*leading), return_map=True, **more).map


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows to a block, so that small maps have several."""
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 4 * 2 * B * H * N)


class Counting:
    """A dot product that remembers how many query rows it was asked for."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        self.rows.append(query.shape[-2])
        return query @ key.transpose(-1, -2)


# ------------------------------------------------------------------ indexing


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index of whole numbers, slices and at most one ellipsis."""

    def part(length: int) -> st.SearchStrategy:
        bound = st.none() | st.integers(-length - 2, length + 2)
        slices = st.builds(slice, bound, bound, st.none() | st.integers(1, 4))
        return st.integers(-length, length - 1) | slices

    front = draw(st.integers(0, len(shape)))
    parts = [draw(part(length)) for length in shape[:front]]
    if draw(st.booleans()):
        back = draw(st.integers(front, len(shape)))
        parts += [..., *(draw(part(length)) for length in shape[back:])]
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


MAPS = {leading: a_map(*leading, mask=regard.window(3, 1)) for leading in ((), (2,), (2, 3))}


@settings(max_examples=100)
@given(st.sampled_from(sorted(MAPS)), st.data())
def test_any_index_gives_what_it_gives_on_the_dense_map(
    leading: tuple[int, ...], data: st.DataObject
) -> None:
    map = MAPS[leading]
    index = data.draw(indices(tuple(map.shape)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ELEMENTS", data.draw(st.sampled_from([1, 12 * 6 * N, 10**6])))
        torch.testing.assert_close(map[index], map.dense()[index], atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(map.scores[index], map.scores.dense()[index])


def test_the_dense_map_is_softmax_of_the_masked_scores() -> None:
    q, k, v = inputs(B, H)
    mask = regard.causal() & regard.lengths([N, 3])
    output, map = regard.attend(q, k, v, mask=mask, return_map=True)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D)
    seen = mask.dense(M, N, leading=2)
    truth = torch.softmax(scores.masked_fill(~seen, -math.inf), -1).nan_to_num(0.0)
    assert map.shape == (B, H, M, N)
    torch.testing.assert_close(map.dense(), truth)
    torch.testing.assert_close(map.scores.dense(), scores)
    torch.testing.assert_close(regard.weighted_sum(map.dense(), v), output)


@pytest.mark.parametrize("index", [torch.tensor([0, 1]), [0, 1], None, "0", 1.0, True, (0, [1])])
def test_other_kinds_of_index_are_refused_with_advice(index: Any) -> None:
    message = (
        r"indexed with whole numbers, slices and \.\.\., got .*; for anything else use \.dense\(\)"
    )
    with pytest.raises(TypeError, match=message):
        a_map(B)[index]


def test_an_index_out_of_range_is_an_index_error() -> None:
    map = a_map(B)
    for index in ((0, M), (0, -M - 1), (B, 0), (0, 0, N), (0, 0, 0, 0), (..., 0, ...)):
        with pytest.raises(IndexError):
            map[index]
    with pytest.raises(IndexError, match=r"query 5 of a map with 5 queries"):
        map[0, M]
    with pytest.raises(IndexError, match=r"too many indices for a map of shape \(2, 5, 7\)"):
        map[0, 0, 0, 0]
    for step in (0, -1):
        with pytest.raises(ValueError, match="step"):
            map[:, ::step]
        with pytest.raises(ValueError, match="step"):
            map[:, :, ::step]


def test_a_map_can_be_walked_like_a_tensor() -> None:
    map = a_map(B)
    assert torch.equal(torch.stack(list(map)), map.dense())  # type: ignore[call-overload]
    assert repr(map) == "AttentionMap(shape=(2, 5, 7))"


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        ((..., 3, slice(None)), 1),
        ((..., slice(1, 4), slice(None)), 3),
        ((0, 1, -1), 1),
        ((..., slice(0, 5, 2), slice(0, 2)), 3),
        ((..., slice(4, 4), slice(None)), 0),
        (1, M),
        (..., M),
    ],
)
def test_no_more_rows_are_computed_than_asked_for(index: Any, rows: int) -> None:
    score = Counting()
    map = regard.attend(*inputs(B, H), score=score, return_map=True).map
    score.rows.clear()
    map[index]
    assert sum(score.rows) == rows
    score.rows.clear()
    map.scores[index]
    assert sum(score.rows) == rows


@pytest.mark.parametrize(
    "look",
    [
        lambda map: map.topk(2),
        lambda map: map.entropy(),
        lambda map: map.pooled(5),
        lambda map: map.pooled(1),
        lambda map: map.edges(top_k=1),
        lambda map: map.dense(),
    ],
)
def test_every_view_computes_each_row_once_and_a_block_at_a_time(look: Callable) -> None:
    score = Counting()
    map = regard.attend(*inputs(B, H), score=score, return_map=True).map
    score.rows.clear()
    look(map)
    assert sum(score.rows) == M
    assert max(score.rows) <= 2


def test_a_map_that_nobody_looks_at_costs_no_score() -> None:
    score = Counting()
    regard.attend(*inputs(), score=score)
    alone = list(score.rows)
    score.rows.clear()
    regard.attend(*inputs(), score=score, return_map=True)
    assert score.rows == alone


# ------------------------------------------------------------------ views


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


# ------------------------------------------------------------------ a graph


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
    assert len(a_map(normalize="hard").edges(top_k=3).weight) == M  # a weight of zero is no edge


# ------------------------------------------------------------------ the map that made the output


def test_the_map_is_before_dropout() -> None:
    torch.manual_seed(0)
    dropped = regard.attend(*inputs(B, H), dropout=0.5, return_map=True)
    torch.testing.assert_close(dropped.map.dense(), a_map(B, H).dense())
    v = inputs(B, H)[2]
    assert float((dropped.map.dense() @ v - dropped.output).abs().max()) > 0.1


@pytest.mark.parametrize("path", ["reference", "blockwise"])
@pytest.mark.parametrize("normalize", ["gumbel", "hard", regard.Gumbel(0.3)])
def test_the_map_has_the_noise_of_the_output(path: str, normalize: Any) -> None:
    q, k, v = inputs(B, H)
    mask = regard.causal()
    runs = [
        regard.attend(q, k, v, normalize=normalize, mask=mask, path=path, return_map=True)
        for _ in range(2)
    ]
    for output, map in runs:
        torch.testing.assert_close(map.dense() @ v, output)
        torch.testing.assert_close(map[..., 2:3, :], map.dense()[..., 2:3, :])  # a draw per place
    if normalize != "hard":
        assert not torch.equal(runs[0].output, runs[1].output)


class Distance(nn.Module):
    """A score of one's own with a parameter and a buffer."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("shift", torch.tensor(0.1))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        difference = query.unsqueeze(-2) - key.unsqueeze(-3) + self.shift
        return -self.scale * difference.square().sum(-1)


SCORES: dict[str, Callable[[], nn.Module]] = {
    "general": lambda: regard.General(D, D),
    "biased_general": lambda: regard.BiasedGeneral(D, D),
    "activated_general": lambda: regard.ActivatedGeneral(D, D),
    "additive": lambda: regard.Additive(D, D, 3),
    "concat": lambda: regard.Concat(D, D, 3),
    "cosine": lambda: regard.Cosine(2.0),
    "location": lambda: regard.Location(D, N),
    "own": Distance,
}


@pytest.mark.parametrize("name", SCORES)
def test_a_step_of_the_optimizer_does_not_change_an_older_map(name: str) -> None:
    torch.manual_seed(0)
    score = SCORES[name]().double()
    q, k, v = inputs(B)
    output, map = regard.attend(q, k, v, score=score, return_map=True)
    before, scores = map.dense(), map.scores.dense()
    with torch.no_grad():
        for tensor in (*score.parameters(), *score.buffers()):
            tensor.add_(0.5)
    assert torch.equal(map.dense(), before)
    assert torch.equal(map.scores.dense(), scores)
    torch.testing.assert_close(map.dense() @ v, output)
    after = regard.attend(q, k, v, score=score, return_map=True).map
    assert not torch.allclose(after.scores.dense(), scores)


@pytest.mark.parametrize("name", ["query", "key", "bias", "mask"])
def test_a_map_whose_inputs_were_changed_in_place_says_so(name: str) -> None:
    q, k, v = inputs(B)
    bias, sizes = numbers(M, N), torch.tensor([N, 3])
    mask = regard.lengths(sizes)
    map = regard.attend(q, k, v, bias=bias, mask=mask, return_map=True).map
    map[0, 0]
    {"query": q, "key": k, "bias": bias, "mask": sizes}[name].add_(1)
    with pytest.raises(RuntimeError, match=f"{name} was changed in place after attend.*clone"):
        map[0, 0]
    with pytest.raises(RuntimeError, match="changed in place"):
        map.scores[0, 0]


def test_changing_values_in_place_leaves_the_map_alone() -> None:
    q, k, v = inputs(B)
    map = regard.attend(q, k, v, return_map=True).map
    before = map.dense()
    v.zero_()
    assert torch.equal(map.dense(), before)


def test_a_map_can_be_read_in_inference_mode() -> None:
    with torch.inference_mode():
        q, k, v = inputs(B)
        map = regard.attend(q, k, v, return_map=True).map
        assert map[0, 0].shape == (N,)
    assert map[0, 0].shape == (N,)


@pytest.mark.parametrize("name", SCORES)
def test_gradients_flow_through_the_map_to_inputs_and_parameters(name: str) -> None:
    torch.manual_seed(0)
    score = SCORES[name]().double()
    q, k, v = inputs(B, grad=True)
    bias = numbers(M, N).requires_grad_()
    mask = regard.causal()
    map = regard.attend(q, k, v, score=score, mask=mask, bias=bias, return_map=True).map
    hidden = ~mask.dense(M, N)
    truth = torch.softmax((score(q, k) + bias).masked_fill(hidden, -math.inf), -1)
    leaves = [q, bias, *score.parameters()] + ([] if name == "location" else [k])
    upstream = numbers(B, M, N, seed=9)
    found = torch.autograd.grad(map.dense(), leaves, upstream, retain_graph=True)
    expected = torch.autograd.grad(truth, leaves, upstream)
    for a, b in zip(found, expected, strict=True):
        assert b.abs().max() > 0
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-8)
    some = torch.autograd.grad(
        map[:, 3:, 2].sum() + map.pooled(2).sum() + map.topk(1).values.sum(), leaves
    )
    assert all(torch.isfinite(g).all() and g.abs().max() > 0 for g in some)


def test_scores_are_before_the_mask_and_with_the_bias() -> None:
    q, k, v = inputs(B)
    bias = numbers(M, N)
    bias[0, 0] = -math.inf
    map = regard.attend(q, k, v, bias=bias, mask=regard.causal(), return_map=True).map
    truth = torch.einsum("bid,bjd->bij", q, k) / math.sqrt(D) + bias
    finite = torch.isfinite(bias)
    torch.testing.assert_close(map.scores.dense()[:, finite], truth[:, finite])
    assert torch.isfinite(map.scores.dense()).all()
    assert torch.count_nonzero(map[:, 0, 0]) == 0


@pytest.mark.parametrize(
    ("query", "key", "value", "mask", "leading"),
    [
        ((2, 1), (1, 3), (), None, (2, 3)),
        ((), (), (3,), None, (3,)),
        ((3,), (), (), (2, 3), (2, 3)),
        ((), (), (), (2, 1), (2, 1)),
    ],
)
def test_the_map_has_all_leading_dimensions(
    query: tuple, key: tuple, value: tuple, mask: tuple | None, leading: tuple
) -> None:
    q, k, v = numbers(*query, M, D), numbers(*key, N, D, seed=1), numbers(*value, N, E, seed=2)
    seen = torch.ones(M, N, dtype=torch.bool) if mask is None else numbers(*mask, M, N) > -1
    output, map = regard.attend(q, k, v, mask=seen, return_map=True)
    assert map.shape == (*leading, M, N)
    assert map.dense().shape == (*leading, M, N)
    assert map.scores[..., 1, :].shape == (*leading, N)
    assert map.entropy().shape == (*leading, M)
    torch.testing.assert_close(map.dense() @ v, output)


# ------------------------------------------------------------------ long sequences


@pytest.mark.parametrize(
    "look",
    [
        lambda map: map.pooled(2),
        lambda map: map.topk(2).values,
        lambda map: map.entropy(),
        lambda map: map[..., 3],
        lambda map: map.edges(top_k=1).weight,
    ],
)
def test_looking_at_a_large_map_keeps_no_block_for_backward(
    look: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 4 * 23 * 223)  # ten blocks
    query, key = numbers(211, 2).requires_grad_(), numbers(223, 2, seed=1).requires_grad_()
    map = regard.attend(query, key, key, mask=regard.causal(), return_map=True).map
    kept = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        seen = look(map)
    assert kept < 211 * 223 / 10
    found = torch.autograd.grad(seen.square().sum(), (query, key))
    whole = AttentionMap(lambda rows: map.dense()[rows], None, (211, 223))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ELEMENTS", 10**6)
        truth = torch.autograd.grad(look(whole).square().sum(), (query, key))
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a, b)


def test_a_dense_map_is_a_tensor_of_its_own() -> None:
    q, k, _ = inputs()
    map = regard.attend(q, k, numbers(3, N, E), return_map=True).map  # three equal maps
    dense = map.dense()
    dense[0] = 0
    assert torch.count_nonzero(dense[1]) > 0


LONG = """
import torch, regard
from pathlib import Path
def peak():  # of this process alone; ru_maxrss begins with the parent's
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(65536, 4)
with torch.no_grad():
    output, map = regard.attend(x, x, x, return_map=True)
    window = map[40000:40064, 39000:39064]
    rows = torch.softmax(x[40000:40064] @ x.T / 2, -1)
    assert torch.allclose(window, rows[:, 39000:39064], atol=1e-7)
    assert map[::4096, :8].shape == (16, 8)
    pooled = map.pooled(256)
    assert pooled.shape == (256, 256)
    strip = torch.softmax(x[512:768] @ x.T / 2, -1)
    assert torch.allclose(pooled[2], strip.amax(0).view(256, 256).amax(-1), atol=1e-7)
print(peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_map_of_four_billion_cells_is_explored_within_one_gigabyte() -> None:
    source = str(Path(regard.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", LONG], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 10**9
