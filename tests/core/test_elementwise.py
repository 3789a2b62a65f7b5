"""Elementwise functions of scores: the formula, every kind of score, another library."""

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.core.score import additive


def inputs(*lengths: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, 3, n, 5, dtype=torch.float64, generator=generator).requires_grad_()
        for n in lengths
    ]


def test_softcap_is_its_equation_in_value_and_gradient() -> None:
    q, k, v = inputs(7, 11, 11)
    bias = torch.randn(7, 11, dtype=torch.float64)
    found = regard.attend(q, k, v, score=regard.SoftCap(1.5), bias=bias)  # added after the cap
    scores = 1.5 * torch.tanh(q @ k.mT / 5**0.5 / 1.5) + bias
    truth = torch.softmax(scores, -1) @ v
    torch.testing.assert_close(found, truth)
    upstream = torch.randn_like(truth)
    for a, b in zip(
        torch.autograd.grad(found, (q, k, v), upstream),
        torch.autograd.grad(truth, (q, k, v), upstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_softcap_is_that_of_x_transformers() -> None:
    attend = pytest.importorskip("x_transformers.attend").Attend
    q, k, v = inputs(7, 7, 7)
    theirs = attend(softclamp_logits=True, logit_softclamp_value=0.8, causal=True)(q, k, v)[0]
    found = regard.attend(q, k, v, score=regard.SoftCap(0.8), mask=regard.causal())
    torch.testing.assert_close(found, theirs)


class Powers(nn.Module):
    """a · s³: a function with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        return self.a * scores**3


@pytest.mark.parametrize("blocks", [1, 4])
def test_any_function_of_any_score(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.core.blocks.BLOCK_ELEMENTS", 2 * 3 * 11 * 8 // blocks)
    q, k, v = inputs(8, 11, 11)
    inner, function = regard.Additive(5, 5, 7).double(), Powers()
    score = regard.Elementwise(function, inner)
    assert {name for name, _ in score.named_parameters()} == {
        *("function.a", "score.query_weight", "score.key_weight", "score.vector"),
    }
    attended = regard.attend(q, k, v, score=score, mask=regard.causal(), return_map=True)
    scores = 0.3 * additive(*inner.as_additive(q, k)) ** 3
    scores = scores.masked_fill(~regard.causal().dense(8, 11), -torch.inf)
    weights = torch.softmax(scores, -1)
    torch.testing.assert_close(attended.output, weights @ v)
    torch.testing.assert_close(attended.map.dense(), weights)
    found = torch.autograd.grad(attended.output.square().sum(), score.parameters())
    truth = torch.autograd.grad((weights @ v).square().sum(), inner.parameters())
    for a, b in zip(found[1:], truth, strict=True):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        function.a.mul_(2)  # an earlier map keeps the parameters that made it
    torch.testing.assert_close(attended.map.dense(), weights)


def test_a_callable_can_be_capped() -> None:
    q, k, v = inputs(3, 5, 5)
    score = regard.SoftCap(2.0, lambda query, key: -torch.cdist(query, key))
    truth = torch.softmax(2 * torch.tanh(-torch.cdist(q, k) / 2), -1) @ v
    torch.testing.assert_close(regard.attend(q, k, v, score=score), truth)


@pytest.mark.parametrize("cap", [0.0, -1.0, float("inf"), float("nan")])
def test_a_cap_is_positive_and_finite(cap: float) -> None:
    with pytest.raises(ValueError, match="cap must be above 0"):
        regard.SoftCap(cap)


def test_a_function_must_be_callable() -> None:
    with pytest.raises(TypeError, match="function must be callable, got float"):
        regard.Elementwise(2.0)  # type: ignore[arg-type]
