"""The capped path in many tiles, and what it does not take."""

import pytest
import torch

import regard
from regard.core.normalize import Normalizer
from regard.paths import capped
from tests.paths.every_path.cases import MASKS, B, D, E, H, M, N


def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor):
    """softmax(3 · tanh(q · k / (3 √d))) v, zeros for rows that see nothing."""
    powers = torch.exp(3 * torch.tanh(q @ k.mT / D**0.5 / 3)) * visible
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-300) @ v


@pytest.mark.parametrize("cells", [200, 5 * N, 2 * M * N])
@pytest.mark.parametrize("mask", list(MASKS))
def test_any_cut_into_tiles_gives_the_formula(
    cells: int, mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capped, "CELLS", cells)
    torch.manual_seed(0)
    inputs = [
        torch.randn(B, H, *size, dtype=torch.float64, requires_grad=True)
        for size in ((M, D), (N, D), (N, E))
    ]
    chosen = MASKS[mask]()
    shown = torch.ones(B, H, M, N, dtype=torch.bool)
    if chosen is not None:
        shown = shown & chosen.dense(M, N, leading=2)
    found = regard.attend(*inputs, score=regard.SoftCap(3.0), mask=chosen, path="capped")
    truth = formula(*inputs, shown)
    torch.testing.assert_close(found, truth)
    upstream = torch.randn_like(truth)
    for a, b in zip(
        torch.autograd.grad(found, inputs, upstream),
        torch.autograd.grad(truth, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"score": regard.SoftCap(50.0), "dropout": 0.1}, "dropout is not fused"),
        ({"score": regard.SoftCap(50.0), "bias": torch.zeros(M, M)}, "a bias is added"),
        ({"score": regard.SoftCap(50.0), "normalize": "sparsemax"}, "not softmax"),
        ({"score": "dot"}, "not a soft-capped dot product"),
    ],
)
def test_what_it_does_not_take_runs_elsewhere(more: dict, reason: str) -> None:
    x = torch.randn(H, M, D)
    with pytest.raises(ValueError, match=reason):
        regard.attend(x, x, x, path="capped", **more)
    truth = regard.attend(x, x, x, path="reference", **{**more, "dropout": 0.0})
    found = regard.attend(x, x, x, **{**more, "dropout": 0.0})
    torch.testing.assert_close(found, truth, atol=1e-5, rtol=1e-5)


def test_inputs_that_change_before_backward_are_an_error_and_a_mask_is_kept() -> None:
    x = torch.randn(H, M, D, requires_grad=True)
    shown = torch.ones(M, M, dtype=torch.bool).tril()
    query = x * 1
    output = regard.attend(query, x, x, score=regard.SoftCap(5.0), mask=shown)
    truth = regard.attend(x * 1, x, x, score=regard.SoftCap(5.0), mask=regard.causal())
    shown.fill_(True)
    for a, b in zip(
        torch.autograd.grad(output.sum(), x, retain_graph=True),
        torch.autograd.grad(truth.sum(), x),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    query.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@pytest.mark.parametrize("mask", [regard.lengths(torch.tensor([0, 0])), regard.causal(offset=-100)])
def test_tiles_that_see_no_key_give_zeros(mask: regard.Mask) -> None:
    x = torch.randn(2, H, M, D, requires_grad=True)
    output = regard.attend(x, x, x, score=regard.SoftCap(5.0), mask=mask, path="capped")
    assert not output.any()
    assert not torch.autograd.grad(output.sum(), x)[0].any()


@pytest.mark.parametrize("sink", [None, 3.0])
def test_large_values_and_caps_do_not_overflow(sink: float | None) -> None:
    torch.manual_seed(0)
    q, k = (10 * torch.randn(H, M, D) for _ in range(2))
    v, upstream = 1e18 * torch.randn(H, M, D), 1e12 * torch.randn(H, M, D)
    for cap in (50.0, 200.0):
        results = []
        for path in ("capped", "reference"):
            inputs = [t.clone().requires_grad_() for t in (q, -k.abs(), v)]
            options = {} if sink is None else {"normalize": Normalizer(sink=sink)}
            output = regard.attend(*inputs, score=regard.SoftCap(cap), path=path, **options)
            results.append([output, *torch.autograd.grad(output, inputs, upstream)])
        for found, expected in zip(*results, strict=True):
            assert expected.isfinite().all()
            largest = float(expected.detach().abs().max())
            torch.testing.assert_close(found / largest, expected / largest, atol=1e-4, rtol=0)
