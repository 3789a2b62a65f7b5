"""The map is the one that made the output: its noise, its parameters, its gradients."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from tests.core.map.maps import B, D, E, H, M, N, a_map, inputs, numbers


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


@pytest.mark.parametrize("name", ["query", "key", "bias"])
def test_a_map_whose_inputs_were_changed_in_place_raises(name: str) -> None:
    q, k, v = inputs(B)
    bias = numbers(M, N)
    with torch.no_grad():
        map = regard.attend(q, k, v, bias=bias, return_map=True).map
    map[0, 0]
    changed = {"query": q, "key": k, "bias": bias}[name]
    changed.copy_(changed == 0)
    with pytest.raises(RuntimeError, match=f"{name} was changed in place after attend.*clone"):
        map[0, 0]
    with pytest.raises(RuntimeError, match="changed in place"):
        map.scores[0, 0]


def test_changing_a_mask_in_place_leaves_the_map_alone() -> None:
    q, k, v = inputs(B)
    shown, sizes, ids = numbers(M, N) > 0, torch.tensor([N, 3]), torch.arange(N) // 3
    for tensor, mask in (
        (shown, lambda: shown),
        (sizes, lambda: regard.lengths(sizes)),
        (ids, lambda: regard.segments(ids[:M], ids)),
    ):
        map = regard.attend(q, k, v, mask=mask(), return_map=True).map
        before = map.dense()
        tensor.copy_(tensor == 0)
        assert torch.equal(map.dense(), before)


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
