"""Every path gives what the reference gives, in value and gradient."""

import math

import pytest
import torch
from torch import Tensor

import regard
from tests.paths.every_path.cases import (
    MASKS,
    SAME_FOR_HEADS,
    SCORES,
    B,
    D,
    E,
    H,
    M,
    N,
    assert_close,
    cases,
    run,
)


@pytest.mark.parametrize(("path", "score", "mask"), cases())
def test_path_gives_the_reference_in_value_and_gradient(path: str, score: str, mask: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    truth = run("reference", module, MASKS[mask](), torch.float64)
    assert_close(run(path, module, MASKS[mask](), torch.float64), truth, 1e-9)
    assert_close(run(path, module, MASKS[mask](), torch.float32), truth, 2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("path", "score"),
    [("reference", "dot"), ("fused", "scaled_dot"), ("banded", "scaled_dot"),
     ("block_sparse", "scaled_dot"), ("capped", "softcap"),
     ("additive_kernel", "additive"), ("blockwise", "additive"), ("blockwise", "scaled_dot")],
)  # fmt: skip
def test_half_precision_is_near_the_reference(path: str, score: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    mask = regard.causal() & regard.lengths(torch.tensor([N, 11]))
    truth = run("reference", module, mask, torch.float64)
    assert_close(run(path, module, mask, dtype), truth, 16 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize(
    ("path", "score"), [("fused", "general"), ("banded", "scaled_dot"), ("capped", "softcap")]
)
def test_a_sink_and_a_temperature_give_the_reference(path: str, score: str, mask: str) -> None:
    if path == "banded" and mask not in SAME_FOR_HEADS:
        pytest.skip("banded needs a mask that is the same for all heads")
    torch.manual_seed(0)
    module, sink = SCORES[score](), torch.nn.Parameter(torch.randn(H))
    temperature = 0.7 if path == "capped" else torch.nn.Parameter(torch.tensor([0.5, 1.0, 2.0]))
    normalize = regard.Normalizer(sink=sink, temperature=temperature)
    truth = run("reference", module, MASKS[mask](), torch.float64, normalize=normalize)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        found = run(path, module, MASKS[mask](), dtype, normalize=normalize)
        assert_close(found, truth, tolerance)


NORMALIZERS = ["softmax", "sparsemax", "entmax15", "hard", "gumbel", "sigmoid", "sink"]


@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("score", ["scaled_dot", "additive", "callable"])
def test_blockwise_repeats_the_noise_of_the_reference(
    normalize: str, dropout: float, score: str
) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    mask = regard.causal() & regard.lengths(torch.tensor([N, 0]))
    truth = run("reference", module, mask, torch.float64, normalize=normalize, dropout=dropout)
    found = run("blockwise", module, mask, torch.float64, normalize=normalize, dropout=dropout)
    assert_close(found, truth, 1e-9)


@pytest.mark.parametrize("score", ["scaled_dot", "location", "additive", "callable"])
@pytest.mark.parametrize("mask", list(MASKS))
def test_gathering_the_chosen_value_equals_weighing_them_all(score: str, mask: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(H, N, E)
    v[:, -1] = math.inf if mask == "causal from the start" else 1.0  # the last key is hidden
    with torch.no_grad():
        more = {"score": module, "mask": MASKS[mask](), "normalize": "hard"}
        truth = regard.attend(q, k, v, path="reference", **more)  # type: ignore
        assert regard.explain(q, k, v, **more).path == "gather"  # type: ignore
        assert torch.equal(regard.attend(q, k, v, **more), truth)  # type: ignore


def test_a_normalizer_of_the_users_own_runs_in_blocks() -> None:
    def squares(scores: Tensor, mask: Tensor | None) -> Tensor:
        weights = scores.square() if mask is None else scores.square() * mask
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)

    truth = run("reference", "dot", regard.causal(), torch.float64, normalize=squares)
    found = run("blockwise", "dot", regard.causal(), torch.float64, normalize=squares)
    assert_close(found, truth, 1e-9)


@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_parameters_in_closures_get_their_gradients(path: str) -> None:
    weight = torch.randn(D, D, dtype=torch.float64, requires_grad=True)
    q, k, v = (torch.randn(M, D, dtype=torch.float64) for _ in range(3))
    out = regard.attend(q, k, v, score=lambda a, b: a @ weight @ b.T, path=path)
    (found,) = torch.autograd.grad(out.square().sum(), weight)
    (truth,) = torch.autograd.grad((torch.softmax(q @ weight @ k.T, -1) @ v).square().sum(), weight)
    torch.testing.assert_close(found, truth)


@pytest.mark.parametrize("path", ["reference", "fused", "banded", "block_sparse", "blockwise"])
def test_torch_is_an_oracle_for_dot_products(path: str) -> None:
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(B, H, N, D)
    mask = torch.rand(B, 1, M, N) > 0.3
    mask[..., 0] = True
    truth = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(regard.attend(q, k, v, mask=mask, path=path), truth)


@pytest.mark.parametrize("path", ["reference", "fused", "blockwise"])
def test_a_bias_is_added_and_its_infinities_hide(path: str) -> None:
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(B, H, N, E)
    bias = torch.randn(H, M, N)
    bias[:, 4] = -math.inf
    bias[1, :, 5:] = -math.inf
    found = regard.attend(q, k, v, bias=bias, mask=regard.causal(), path=path)
    scores = q @ k.transpose(-1, -2) / math.sqrt(D) + bias
    scores = scores.masked_fill(~regard.causal().dense(M, N), -math.inf)
    torch.testing.assert_close(found, torch.softmax(scores, -1).nan_to_num(0.0) @ v)


@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_the_gradient_of_a_bias_is_right(path: str) -> None:
    q, k, v = (torch.randn(2, 7, 3, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(7, 7, dtype=torch.float64)
    bias[2] = -math.inf
    bias[3, 4] = -math.inf
    bias.requires_grad_()

    def function(bias: Tensor) -> Tensor:
        return regard.attend(q, k, v, bias=bias, path=path)

    (found,) = torch.autograd.grad(function(bias).square().sum(), bias)
    assert torch.count_nonzero(found[2]) == 0
    assert found[3, 4] == 0
    step = torch.zeros_like(bias)
    step[5, 1] = 1e-6
    with torch.no_grad():
        change = (
            function(bias + step).square().sum() - function(bias - step).square().sum()
        ) / 2e-6
    torch.testing.assert_close(found[5, 1], change, atol=1e-7, rtol=1e-6)


def test_a_bias_that_needs_a_gradient_is_not_fused() -> None:
    q = torch.randn(1, 64, 8)
    bias = torch.zeros(64, 64, requires_grad=True)
    assert regard.explain(q, q, q, bias=bias).path == "blockwise"
    with pytest.raises(ValueError, match="bias needs a gradient"):
        regard.attend(q, q, q, bias=bias, path="fused")
