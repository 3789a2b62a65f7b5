"""Every score against its paper's equation, written out pair by pair with parameters of its own."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import regard
from regard.core import blocks, score
from regard.core.names import build_score

B, M, N, DQ, DK, HIDDEN = 2, 3, 5, 7, 11, 13


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def pairs(
    f: Callable[[list[float], list[float], int], float], query: Tensor, key: Tensor
) -> Tensor:
    """Scores from an equation for one query, one key and the key's position."""
    return torch.tensor(
        [[[f(q, k, j) for j, k in enumerate(ks)] for q in qs]
         for qs, ks in zip(query.tolist(), key.tolist(), strict=True)],
        dtype=torch.float64,
    )  # fmt: skip


def inner(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Tensor, vector: list[float]) -> list[float]:
    return [inner(row, vector) for row in matrix.tolist()]


# ------------------------------------------------------------------ the equations


class Case(NamedTuple):
    """A score as a function and as a module, and the equation of its paper for one pair."""

    function: Callable[..., Tensor]
    parameters: tuple[Tensor, ...]
    module: nn.Module
    dims: tuple[int, int]
    equation: Callable[[list[float], list[float], int], float]


def dot_case() -> Case:
    return Case(score.dot, (), regard.Dot(), (DQ, DQ), lambda q, k, j: inner(q, k))


def scaled_dot_case() -> Case:
    def equation(q: list[float], k: list[float], j: int) -> float:
        return inner(q, k) / math.sqrt(DQ)

    return Case(score.scaled_dot, (), regard.ScaledDot(), (DQ, DQ), equation)


def general_case() -> Case:
    W = numbers(DQ, DK)

    def equation(q: list[float], k: list[float], j: int) -> float:
        return sum(q[a] * float(W[a, b]) * k[b] for a in range(DQ) for b in range(DK))

    return Case(score.general, (W,), regard.General(DQ, DK), (DQ, DK), equation)


def biased_general_case() -> Case:
    W, b = numbers(DK, DQ), numbers(DK)

    def equation(q: list[float], k: list[float], j: int) -> float:
        return inner(k, [x + y for x, y in zip(times(W, q), b.tolist(), strict=True)])

    return Case(score.biased_general, (W, b), regard.BiasedGeneral(DQ, DK), (DQ, DK), equation)


def activated_general_case() -> Case:
    W, b = numbers(DK, DQ) / 3, numbers(1)[0]

    def equation(q: list[float], k: list[float], j: int) -> float:
        return math.tanh(inner(k, times(W, q)) + float(b))

    module = regard.ActivatedGeneral(DQ, DK)
    return Case(score.activated_general, (W, b), module, (DQ, DK), equation)


def additive_case() -> Case:
    W1, W2, w = numbers(HIDDEN, DQ), numbers(HIDDEN, DK), numbers(HIDDEN)

    def function(q: Tensor, k: Tensor, W1: Tensor, W2: Tensor, w: Tensor) -> Tensor:
        return score.additive(q @ W1.T, k @ W2.T, w)

    def equation(q: list[float], k: list[float], j: int) -> float:
        hidden = [math.tanh(x + y) for x, y in zip(times(W1, q), times(W2, k), strict=True)]
        return inner(w.tolist(), hidden)

    return Case(function, (W1, W2, w), regard.Additive(DQ, DK, HIDDEN), (DQ, DK), equation)


def concat_case() -> Case:
    W, w = numbers(HIDDEN, DQ + DK), numbers(HIDDEN)

    def equation(q: list[float], k: list[float], j: int) -> float:
        return inner(w.tolist(), [math.tanh(x) for x in times(W, q + k)])

    return Case(score.concat, (W, w), regard.Concat(DQ, DK, HIDDEN), (DQ, DK), equation)


def cosine_case() -> Case:
    def equation(q: list[float], k: list[float], j: int) -> float:
        return 1.7 * inner(q, k) / math.sqrt(inner(q, q) * inner(k, k))

    beta = torch.tensor(1.7, dtype=torch.float64)
    return Case(score.cosine, (beta,), regard.Cosine(), (DQ, DQ), equation)


def location_case() -> Case:
    W = numbers(N + 2, DQ)

    def equation(q: list[float], k: list[float], j: int) -> float:
        return times(W, q)[j]

    return Case(score.location, (W,), regard.Location(DQ, N + 2), (DQ, DK), equation)


CASES = {
    "dot": dot_case,
    "scaled_dot": scaled_dot_case,
    "general": general_case,
    "biased_general": biased_general_case,
    "activated_general": activated_general_case,
    "additive": additive_case,
    "concat": concat_case,
    "cosine": cosine_case,
    "location": location_case,
}
every_score = pytest.mark.parametrize("name", CASES)


def case(name: str) -> tuple[Any, tuple[Tensor, ...], nn.Module, Tensor, Tensor, Tensor]:
    """The function, its parameters, the module with the same ones, query, key and the truth."""
    function, parameters, module, (query_dim, key_dim), equation = CASES[name]()
    module = module.double()
    for own, given in zip(module.parameters(), parameters, strict=True):
        assert own.shape == given.shape
        own.data.copy_(given)
    query, key = numbers(B, M, query_dim, seed=1), numbers(B, N, key_dim, seed=2)
    return function, parameters, module, query, key, pairs(equation, query, key)


@every_score
def test_a_score_is_its_papers_equation(name: str) -> None:
    function, parameters, module, query, key, truth = case(name)
    torch.testing.assert_close(function(query, key, *parameters), truth, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(module(query, key), truth, atol=1e-12, rtol=1e-12)


@every_score
def test_every_derivative_of_a_score_is_right(name: str) -> None:
    function, parameters, _, query, key, _ = case(name)
    inputs = [t.clone().requires_grad_() for t in (query[:1, :2], key[:1, :3], *parameters)]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@every_score
def test_a_module_sends_gradients_to_every_parameter(name: str) -> None:
    function, parameters, module, query, key, _ = case(name)
    leaves = [t.clone().requires_grad_() for t in parameters]
    upstream = numbers(B, M, N)
    found = (
        torch.autograd.grad(module(query, key), list(module.parameters()), upstream)
        if leaves
        else ()
    )
    truth = torch.autograd.grad(function(query, key, *leaves), leaves, upstream) if leaves else ()
    for a, b in zip(found, truth, strict=True):
        assert a.abs().max() > 0
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "name", ["dot", "scaled_dot", "general", "biased_general", "cosine", "location"]
)
def test_as_dot_gives_the_same_scores(name: str) -> None:
    *_, module, query, key, truth = case(name)
    q, k, scale = module.as_dot(query, key)  # type: ignore[operator]
    found = torch.einsum("bid,bjd->bij", q, k.expand(B, -1, -1)) * scale
    torch.testing.assert_close(found, truth, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["additive", "concat"])
def test_as_additive_gives_the_same_scores(name: str) -> None:
    *_, module, query, key, truth = case(name)
    q, k, w = module.as_additive(query, key)  # type: ignore[operator]
    found = torch.einsum("bijh,h->bij", torch.tanh(q[:, :, None] + k[:, None]), w)
    torch.testing.assert_close(found, truth, atol=1e-12, rtol=1e-12)


def test_keys_projected_once_score_the_same() -> None:
    *_, module, query, key, truth = case("additive")
    assert isinstance(module, regard.Additive)
    again = module.projected()
    torch.testing.assert_close(again(query, module.project(key)), truth, atol=1e-12, rtol=1e-12)
    q, k, w = again.as_additive(query, module.project(key))
    torch.testing.assert_close(score.additive(q, k, w), truth, atol=1e-12, rtol=1e-12)


def test_concat_is_additive_with_its_matrix_cut_in_two() -> None:
    W1, W2, v = numbers(HIDDEN, DQ), numbers(HIDDEN, DK), numbers(HIDDEN)
    together = regard.Concat(DQ, DK, HIDDEN).double()
    apart = regard.Additive(DQ, DK, HIDDEN).double()
    together.load_state_dict({"weight": torch.cat([W1, W2], dim=1), "vector": v})
    apart.load_state_dict({"query_weight": W1, "key_weight": W2, "vector": v})
    query, key = numbers(B, M, DQ), numbers(B, N, DK)
    torch.testing.assert_close(together(query, key), apart(query, key), atol=1e-12, rtol=0)


@every_score
def test_leading_dimensions_of_query_and_key_broadcast(name: str) -> None:
    function, parameters, _, query, key, _ = case(name)
    query, key = query.unsqueeze(1), key.unsqueeze(0)  # (B, 1, M, Dq), (1, B, N, Dk)
    found = function(query, key, *parameters).expand(B, B, M, N)
    for a in range(B):
        for b in range(B):
            alone = function(query[a, 0], key[0, b], *parameters)
            torch.testing.assert_close(found[a, b], alone, atol=1e-12, rtol=1e-12)


# ------------------------------------------------------------------ one by one


def test_an_activation_may_be_chosen() -> None:
    W, b = numbers(DK, DQ), numbers(1)[0]
    query, key = numbers(B, M, DQ), numbers(B, N, DK)
    module = regard.ActivatedGeneral(DQ, DK, activation=torch.relu).double()
    module.load_state_dict({"weight": W, "bias": b})
    truth = (torch.einsum("bjk,kq,biq->bij", key, W, query) + b).clamp(min=0)
    torch.testing.assert_close(module(query, key), truth)


def test_cosine_of_a_zero_vector_is_zero_with_no_gradient_of_any_order() -> None:
    query, key = numbers(2, 3), numbers(5, 3)
    query[1], key[4] = 0.0, 0.0
    query.requires_grad_()
    key.requires_grad_()
    found = score.cosine(query, key)
    assert torch.equal(found[1], torch.zeros(5, dtype=torch.float64))
    assert torch.equal(found[:, 4], torch.zeros(2, dtype=torch.float64))
    first = torch.autograd.grad(found.sum(), (query, key), create_graph=True)
    assert torch.count_nonzero(first[0][1]) == 0
    assert torch.count_nonzero(first[1][4]) == 0
    second = torch.autograd.grad(sum(g.square().sum() for g in first), (query, key))
    assert all(torch.isfinite(g).all() for g in (*first, *second))
    assert all(g.abs().max() > 0 for g in (*first, *second))


def test_cosine_does_not_ask_how_long_a_vector_is() -> None:
    query, key = numbers(M, DQ), numbers(N, DQ)
    torch.testing.assert_close(score.cosine(query * 1e-4, key * 1e5), score.cosine(query, key))


def test_a_location_score_looks_at_the_query_and_the_number_of_keys_only() -> None:
    W = numbers(N + 2, DQ)
    query = numbers(B, M, DQ)
    one, other = (
        score.location(query, numbers(B, N, DK), W),
        score.location(query, numbers(B, N, 2), W),
    )
    assert torch.equal(one, other)
    shorter = score.location(query, numbers(B, N - 1, DK), W)
    torch.testing.assert_close(shorter, one[..., : N - 1])


def test_more_keys_than_positions_is_an_error_with_their_number() -> None:
    query, key = torch.randn(M, DQ), torch.randn(N, DK)
    message = "has 3 positions but there are 5 keys; build it with max_length=5 or more"
    with pytest.raises(ValueError, match=message):
        regard.Location(DQ, 3)(query, key)
    with pytest.raises(ValueError, match=message):
        regard.Location(DQ, 3).as_dot(query, key)


@every_score
def test_a_wrong_last_dimension_is_an_error_that_names_the_shapes(name: str) -> None:
    _, _, module, query, key, _ = case(name)
    calls = [module] + [
        getattr(module, form) for form in ("as_dot", "as_additive") if hasattr(module, form)
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"this score takes .*got.*\(2, 3, 17\)"):
            call(torch.zeros(B, M, 17, dtype=torch.float64), key)
        if name == "location":
            continue  # has no use for keys
        with pytest.raises(ValueError, match=r"this score takes .*got.*\(2, 5, 19\)"):
            call(query, torch.zeros(B, N, 19, dtype=torch.float64))


def test_concat_notices_that_query_and_key_were_swapped() -> None:
    with pytest.raises(ValueError, match=r"takes query of shape \(..., length, 7\), got \(3, 11\)"):
        regard.Concat(DQ, DK, HIDDEN)(torch.zeros(M, DK), torch.zeros(N, DQ))
    with pytest.raises(ValueError, match=r"takes 18 numbers .* query \(3, 7\) and key \(5, 7\)"):
        score.concat(
            torch.zeros(M, DQ), torch.zeros(N, DQ), torch.zeros(HIDDEN, 18), torch.zeros(HIDDEN)
        )


# ------------------------------------------------------------------ blocks and memory


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation makes."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.numel())
        return result


def additive_with_derivatives(inputs: list[Tensor]) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in inputs]
    value = score.additive(*leaves)
    weights = torch.arange(value.numel(), dtype=value.dtype).view_as(value).cos()
    first = torch.autograd.grad((value * weights).sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
    return [value, *first, *second]


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_additive_in_blocks_of_rows_is_additive(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    inputs = [numbers(2, 3, 11, 5), numbers(2, 1, 7, 5), numbers(5)]
    whole = additive_with_derivatives(inputs)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", rows * 2 * 3 * 7 * 5)
    for a, b in zip(additive_with_derivatives(inputs), whole, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


def test_additive_never_holds_all_pairs_of_all_features(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [torch.randn(41, 7, requires_grad=True), torch.randn(43, 7), torch.randn(7)]
    budget = 12 * 43 * 7  # more than the scores, less than a third of all features of all pairs
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", budget)
    with Largest() as largest:
        score.additive(*inputs).sum().backward()
    assert largest.size == budget


# ------------------------------------------------------------------ half precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_score
def test_half_precision_is_near_the_equation(name: str, dtype: torch.dtype) -> None:
    function, parameters, module, query, key, _ = case(name)
    rounded = [t.to(dtype) for t in (query, key, *parameters)]
    truth = function(*(t.double() for t in rounded))
    for scores in (function(*rounded), module.to(dtype)(*rounded[:2])):
        scale = max(float(truth.abs().max()), 1.0)
        error = float((scores.detach().double() - truth).abs().max())
        assert error / scale < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", ["dot", "scaled_dot"])
def test_scores_beyond_the_range_of_float16_stay_finite(name: str) -> None:
    query = torch.full((2, 1024), 60.0, dtype=torch.float16)
    scores = getattr(score, name)(query, query)
    assert torch.equal(scores, torch.full((2, 2), 3600.0 * (1024 if name == "dot" else 32)))


def test_the_cosine_of_long_float16_vectors_is_finite() -> None:
    query = torch.full((1, 64), 3e4, dtype=torch.float16)  # its length is beyond 65504
    torch.testing.assert_close(score.cosine(query, query), torch.ones(1, 1), atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", ["general", "biased_general"])
def test_a_form_built_by_name_has_entries_of_a_quarter_and_scores_of_variance_one(name):
    torch.manual_seed(0)
    module = build_score(name, 64, 48).double()
    query, key = torch.randn(200, 64).double(), torch.randn(300, 48).double()
    scores = module(query, key)
    assert 0.9 < 4 * module.weight.std() < 1.1
    assert 0.9 < scores.std() < 1.1
    query_side, key_side, scale = module.as_dot(query, key)
    torch.testing.assert_close(scale * query_side @ key_side.T, scores)
    form = module.weight if name == "general" else module.weight.T
    torch.testing.assert_close(scores, query @ form @ key.T * 4 / math.sqrt(64 * 48))


def test_the_scale_of_an_activated_form_is_inside_the_activation():
    module = regard.ActivatedGeneral(DQ, DK, scale=0.3).double()
    query, key = numbers(4, DQ), numbers(5, DK)
    torch.testing.assert_close(
        module(query, key), torch.tanh(0.3 * query @ module.weight.T @ key.T)
    )
