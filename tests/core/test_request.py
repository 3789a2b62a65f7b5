"""Checks of the arguments: each error has what was expected, what was given, and how to fix it."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.core.normalize import NORMALIZERS
from regard.core.request import make_request
from regard.core.score import SCORES, WITH_PARAMETERS
from regard.layers import MultiHeadAttention

B, M, N, D, E = 2, 3, 5, 7, 11


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(*shape, dtype=dtype)


def attend(**changes: Any) -> Tensor:
    """A call in which everything fits, but for the changes."""
    fitting = {"query": zeros(B, M, D), "key": zeros(B, N, D), "value": zeros(B, N, E)}
    return regard.attend(**{**fitting, **changes})


def raises(kind: type[Exception], *parts: str) -> Any:
    """Expect an error whose message has these parts, in this order."""
    return pytest.raises(kind, match="(?s)" + ".*".join(re.escape(part) for part in parts))


# ------------------------------------------------------------------ query, key and value


@pytest.mark.parametrize("function", [regard.attend, regard.explain, regard.attend_features])
def test_a_query_with_fewer_dimensions_than_the_key_is_refused(function: Callable) -> None:
    query, key = zeros(B, D), zeros(B, N, D)
    with raises(ValueError, f"query {(B, D)}", f"key {(B, N, D)}", "query[:, None]", "query[None]"):
        function(query, key, key)
    assert attend(query=query[:, None]).shape == (B, 1, E)
    assert attend(query=query[None]).shape == (B, B, E)
    assert attend(key=zeros(N, D), value=zeros(N, E)).shape == (B, M, E)  # shared keys


@pytest.mark.parametrize("size", ["tiny", "large"])
@pytest.mark.parametrize("path", ["auto", "reference", "fused", "blockwise"])
@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine"])
def test_a_wrong_last_dimension_is_named_on_every_path(score: str, path: str, size: str) -> None:
    length = 3 if size == "tiny" else 61
    query, key = zeros(B, 2, length, 7), zeros(B, 2, length, 8)
    shapes = (f"query {tuple(query.shape)}", f"key {tuple(key.shape)}", "General(7, 8)")
    with raises(ValueError, "same last dimension", *shapes):
        regard.attend(query, key, key, score=score, path=path)


@pytest.mark.parametrize("length", [3, 61])
@pytest.mark.parametrize(
    "score",
    [
        regard.General(7, 8),
        regard.BiasedGeneral(7, 8),
        regard.ActivatedGeneral(7, 8),
        regard.Additive(7, 8, 5),
        regard.Concat(7, 8, 5),
    ],
    ids=lambda score: type(score).__name__,
)
def test_a_last_dimension_the_score_was_not_built_for_is_named(score: Any, length: int) -> None:
    query, key = zeros(B, length, 7), zeros(B, length, 8)
    assert regard.attend(query, key, key, score=score).shape == (B, length, 8)
    with raises(ValueError, "query of shape (..., length, 7)", f"{(B, length, 8)}", "query_dim=8"):
        regard.attend(key, key, key, score=score)
    with raises(ValueError, "key of shape (..., length, 8)", f"{(B, length, 7)}", "key_dim=7"):
        regard.attend(query, query, key, score=score)


def test_key_and_value_must_have_one_length() -> None:
    with raises(
        ValueError, "same length", "(2, 5, 7) with 5", "(2, 4, 11) with 4", "one value per key"
    ):
        attend(value=zeros(B, 4, E))


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_inputs_are_float_tensors_of_two_dimensions_or_more(name: str) -> None:
    with raises(TypeError, f"{name} must be a tensor, got list"):
        attend(**{name: [[1.0]]})
    with raises(TypeError, f"{name} must be a float tensor, got torch.int64", ".float()"):
        attend(**{name: zeros(B, 5, D).long()})
    with raises(ValueError, f"{name} must be (..., length, dim), got shape (7,)", f"{name}[None]"):
        attend(**{name: zeros(D)})


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_of_the_strided_layout_are_refused_with_the_one_to_use() -> None:
    nested = torch.nested.nested_tensor([zeros(3, 4), zeros(5, 4)], layout=torch.strided)
    for call in (
        lambda: regard.attend(nested, nested, nested),
        lambda: MultiHeadAttention(4, 2)(nested),
    ):
        with raises(TypeError, "jagged nested tensor", "layout=torch.jagged"):
            call()


def test_inputs_share_a_dtype() -> None:
    with raises(
        TypeError, "share a dtype, got torch.float32, torch.float64, torch.float32", ".to("
    ):
        attend(key=zeros(B, N, D, dtype=torch.float64))


def test_leading_dimensions_must_broadcast() -> None:
    with raises(
        ValueError, "do not broadcast", "(2, 3, 7), (4, 5, 7), (2, 5, 11)", "equal, 1 or absent"
    ):
        attend(key=zeros(4, N, D))
    with raises(ValueError, "do not broadcast", "(3, 3, 5)"):
        attend(bias=zeros(3, M, N))


def test_a_value_is_not_repeated_for_keys_that_differ() -> None:
    with raises(ValueError, "same batch", "(2, 5, 7)", "(1, 5, 11)", "expand"):
        attend(value=zeros(1, N, E))
    assert attend(value=zeros(N, E)).shape == (B, M, E)
    assert attend(key=zeros(1, N, D), value=zeros(1, N, E)).shape == (B, M, E)


# ------------------------------------------------------------------ masks and bias


@pytest.mark.parametrize("mask", [zeros(M, N), torch.ones(M, N).int()])
def test_numbers_where_a_mask_belongs_are_refused_with_advice(mask: Any) -> None:
    with raises(
        TypeError, "bool tensor with True = may attend, got", "pass it as bias=", "mask != 0"
    ):
        attend(mask=mask)


def test_a_list_where_a_mask_belongs_is_refused_with_advice() -> None:
    with raises(TypeError, "got list; pass a tensor, or a mask such as regard.causal()"):
        attend(mask=[[True]])


def test_a_mask_of_the_wrong_shape_is_refused_with_the_right_one() -> None:
    with raises(
        ValueError, "mask of shape (5, 3) does not fit 3 queries and 5 keys", "(..., 3, 5)"
    ):
        attend(mask=torch.ones(N, M, dtype=torch.bool))
    with raises(
        ValueError, "visible(4, 3, 5) does not fit a map of shape (2, 3, 5)", "broadcast to (2,)"
    ):
        attend(mask=torch.ones(4, M, N, dtype=torch.bool))
    with raises(ValueError, "lengths(keys(3,)) does not fit a map of shape (2, 3, 5)"):
        attend(mask=regard.lengths([1, 2, 3]))
    with raises(ValueError, "lengths() has 9 keys but there are only 5"):
        attend(mask=regard.causal() & regard.lengths([9, 1]))
    with raises(ValueError, "ids for 4 queries and 4 keys, but there are 3 queries and 5 keys"):
        attend(mask=regard.segments(torch.zeros(4).long()))
    with raises(
        ValueError, "lengths(keys(2,)) has 1 leading dimensions but", "have 0", "batch dimension"
    ):
        regard.attend(zeros(M, D), zeros(N, D), zeros(N, E), mask=regard.lengths([1, 2]))


def test_a_mask_with_more_dimensions_than_the_inputs_is_checked_with_the_map_it_makes() -> None:
    everything = torch.ones(5, 2, M, N, dtype=torch.bool)
    assert attend(mask=everything).shape == (5, 2, M, E)
    with raises(
        ValueError, "(lengths(keys(2,)) & visible(5, 2, 3, 5)) does not fit", "(5, 2, 3, 5)"
    ):
        attend(mask=regard.lengths([1, 2]) & everything)


def test_a_bias_is_a_float_tensor_that_fits() -> None:
    with raises(TypeError, "bias must be a float tensor, got torch.bool", "mask="):
        attend(bias=torch.ones(M, N, dtype=torch.bool))
    with raises(TypeError, "bias must be a float tensor, got float"):
        attend(bias=1.0)
    with raises(
        ValueError, "bias of shape (5, 3) does not fit 3 queries and 5 keys", "(..., 3, 5)"
    ):
        attend(bias=zeros(N, M))


@pytest.mark.parametrize("shape", [(M, N), (1, N), (M, 1), (1, 1), (B, M, N), (B, 1, N)])
def test_a_bias_broadcasts_and_its_infinities_hide(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(B, M, D), torch.randn(B, N, D), torch.randn(B, N, E)
    bias = torch.randn(shape)
    if shape[-1] == N:
        bias[..., 2] = -math.inf
    scores = query @ key.transpose(-1, -2) / math.sqrt(D) + bias
    truth = torch.softmax(scores, -1) @ value
    for path in ("reference", "fused", "blockwise"):
        found = regard.attend(query, key, value, bias=bias, path=path)
        torch.testing.assert_close(found, truth)


# ------------------------------------------------------------------ names and numbers


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, math.nan])
def test_dropout_is_at_least_zero_and_below_one(dropout: float) -> None:
    with raises(
        ValueError, f"dropout must be at least 0 and below 1, got {dropout}", "0 drops none"
    ):
        attend(dropout=dropout)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("scaled-dott", "scaled_dot"), ("Dott", "dot"), ("cosin", "cosine"), ("adddtive", "additive")],
)
def test_an_unknown_score_is_answered_with_the_nearest_name(wrong: str, near: str) -> None:
    with raises(
        ValueError, f"unknown score {wrong!r}; did you mean {near!r}? Known: dot, scaled_dot"
    ):
        attend(score=wrong)


def test_other_unknown_names_are_answered_too() -> None:
    with raises(ValueError, "unknown score 'zzz'; known: dot, scaled_dot, cosine"):
        attend(score="zzz")
    with raises(ValueError, "unknown normalizer 'sotfmax'; did you mean 'softmax'? Known: softmax"):
        attend(normalize="sotfmax")
    with raises(ValueError, "unknown path 'fussed'; did you mean 'fused'? Known: auto, reference"):
        attend(path="fussed")
    with raises(TypeError, "score must be a name or a callable (query, key) -> scores, got int"):
        attend(score=3)
    with raises(
        TypeError, "normalize must be a name or a callable (scores, mask) -> weights, got int"
    ):
        attend(normalize=3)


@pytest.mark.parametrize("name", WITH_PARAMETERS)
def test_the_name_of_a_score_with_parameters_is_answered_with_its_module(name: str) -> None:
    with raises(ValueError, f"score {name!r} has parameters: pass score=regard.") as error:
        attend(score=name)
    call = "regard." + str(error.value).partition("regard.")[2]
    sizes = {"query_dim": D, "key_dim": D, "hidden": 4, "max_length": N}
    module = eval(call, {"regard": regard, **sizes})  # the advice is code that runs
    assert attend(score=module).shape == (B, M, E)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_without_parameters_goes_by_its_name(name: str) -> None:
    assert attend(score=name).shape == (B, M, E)
    assert not any(p.requires_grad for p in SCORES[name].parameters())


def test_every_normalizer_goes_by_its_name() -> None:
    assert {"softmax", "sparsemax", "entmax15", "hard", "gumbel"} <= set(NORMALIZERS)
    for name in NORMALIZERS:
        assert attend(normalize=name).shape == (B, M, E)


def test_more_keys_than_positions_is_an_error_on_every_path() -> None:
    for path in ("reference", "fused", "blockwise"):
        with raises(ValueError, "4 positions but there are 5 keys", "max_length=5 or more"):
            attend(score=regard.Location(D, 4), path=path)


@pytest.mark.parametrize(
    "score",
    [
        lambda q, k: q @ k.transpose(-1, -2).sum(-1, keepdim=True),
        lambda q, k: k @ q.transpose(-1, -2),
        lambda q, k: 1.0,
        lambda q, k: (q @ k.transpose(-1, -2)).sum(),
        lambda q, k: (q @ k.transpose(-1, -2)).expand(4, 2, 3, 5),
        lambda q, k: (q @ k.transpose(-1, -2))[:1].expand(3, 3, 5),
    ],
)
@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_a_score_that_returns_the_wrong_shape_is_an_error_with_the_right_one(
    score: Callable, path: str
) -> None:
    with raises(
        ValueError,
        "the score should return (2, 3, 5)",
        "for query (2, 3, 7) and key (2, 5, 7), got",
    ):
        attend(score=score, path=path)


def test_a_path_that_cannot_compute_a_request_gives_the_reason() -> None:
    with raises(ValueError, "path 'fused' cannot do this", "dropout is not fused", "path='auto'"):
        attend(path="fused", dropout=0.5)
    with raises(ValueError, "path 'banded' cannot do this", "it has no mask"):
        attend(path="banded")
    with raises(ValueError, "path 'additive_kernel' cannot do this", "not w · tanh(q + k)"):
        attend(path="additive_kernel")


# ------------------------------------------------------------------ side effects


def test_explaining_a_call_draws_no_random_number() -> None:
    query = zeros(B, M, D)
    before = torch.get_rng_state()
    regard.explain(query, query, query, dropout=0.5, normalize="gumbel")
    assert torch.equal(torch.get_rng_state(), before)
    regard.attend(query, query, query)
    assert torch.equal(torch.get_rng_state(), before)
    regard.attend(query, query, query, dropout=0.5)
    assert not torch.equal(torch.get_rng_state(), before)


def test_a_call_changes_none_of_its_arguments() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(B, M, D), torch.randn(B, N, D), torch.randn(B, N, E)
    bias = torch.randn(M, N)
    bias[0, 1] = -math.inf
    key[:, -1], value[:, -1] = math.nan, math.inf
    given = [t.clone() for t in (query, key, value, bias)]
    for path in ("reference", "fused", "blockwise"):
        regard.attend(query, key, value, mask=regard.lengths([4, 2]), bias=bias, path=path)
    for before, after in zip(given, (query, key, value, bias), strict=True):
        torch.testing.assert_close(after, before, equal_nan=True, rtol=0, atol=0)


# ------------------------------------------------------------------ hidden from every query


def request_of(query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Any:
    return make_request(
        query, key, value, score=SCORES["dot"], mask=mask, bias=None,
        normalize=NORMALIZERS["softmax"], dropout=0.0,
    )  # fmt: skip


def test_a_finite_request_is_clean_as_it_is() -> None:
    request = request_of(zeros(B, M, D), zeros(B, N, D), zeros(B, N, E), regard.lengths([2, 3]))
    assert request.zero_hidden() is request
    poisoned = torch.full((B, N, D), math.nan)
    unmasked = request_of(zeros(B, M, D), poisoned, zeros(B, N, E), None)
    assert unmasked.zero_hidden() is unmasked  # everybody sees everything


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_one_of_several_readers_sees_is_kept(poison: float) -> None:
    query, key, value = torch.ones(B, M, D), torch.ones(N, D), torch.ones(N, E)  # keys are shared
    key[3:] = poison
    value[4] = poison
    request = request_of(query, key, value, regard.lengths([4, 2])).zero_hidden()
    assert torch.isfinite(request.value).all()
    assert not torch.isfinite(request.key[3]).any()  # the first sequence sees it
    assert torch.count_nonzero(request.key[4]) == 0


def test_a_poisoned_query_that_sees_nothing_reaches_nothing() -> None:
    torch.manual_seed(0)
    seen = torch.ones(M, N, dtype=torch.bool)
    seen[1] = False
    first = regard.visible(torch.arange(N) < 2)
    for mask in (regard.visible(seen), first & regard.visible(seen), ~(~first | ~seen)):
        for path in ("reference", "fused", "banded", "blockwise"):
            query, key, value = torch.randn(M, D), torch.randn(N, D), torch.randn(N, E)
            query[1] = math.nan
            leaves = [t.requires_grad_() for t in (query, key, value)]
            output = regard.attend(*leaves, mask=mask, path=path)
            assert torch.count_nonzero(output[1]) == 0
            gradients = torch.autograd.grad(output.square().sum(), leaves)
            assert all(torch.isfinite(g).all() for g in gradients)
            assert torch.count_nonzero(gradients[0][1]) == 0
