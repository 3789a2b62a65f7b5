"""Which path is taken, and that it does not depend on the map."""

import pytest
import torch

import regard
from tests.paths.every_path.cases import PATH_SCORE, SCORES, B, D, E, H, M, N, negative_distance


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_returning_the_map_changes_no_bit(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(B, H, N, E)
    mask = regard.window(5, 1)
    alone = regard.attend(q, k, v, score=module, mask=mask, path=path)  # type: ignore
    both = regard.attend(q, k, v, score=module, mask=mask, path=path, return_map=True)  # type: ignore
    assert torch.equal(alone, both.output)
    torch.testing.assert_close(both.map.dense() @ v, alone, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("size", [(2, 2, 3, 5), (2, 3, 31, 37)])
@pytest.mark.parametrize("more", [{}, {"dropout": 0.3}, {"mask": regard.causal()}])
def test_the_automatic_choice_does_not_depend_on_the_map(size: tuple, more: dict) -> None:
    b, h, m, n = size
    q, k, v = torch.randn(b, h, m, D), torch.randn(b, h, n, D), torch.randn(b, h, n, D)
    torch.manual_seed(5)
    alone = regard.attend(q, k, v, **more)
    torch.manual_seed(5)
    assert torch.equal(alone, regard.attend(q, k, v, return_map=True, **more).output)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "fused"),
        ({"mask": regard.causal()}, "fused"),
        ({"mask": regard.window(4, 4)}, "banded"),
        ({"mask": regard.lengths(torch.tensor([3, 900]))}, "banded"),
        ({"mask": regard.window(4, 4) | regard.global_tokens(3)}, "block_sparse"),
        ({"mask": torch.eye(997, 1009) + torch.eye(1009)[:997].roll(499, 1) > 0}, "block_sparse"),
        ({"mask": torch.rand(997, 1009) > 0.5}, "fused"),
        ({"dropout": 0.1}, "blockwise"),
        ({"normalize": "sparsemax"}, "blockwise"),
        ({"score": negative_distance}, "blockwise"),
        ({"score": regard.Additive(64, 64, 3)}, "additive_kernel"),
        ({"score": regard.Additive(64, 64, 3), "dropout": 0.1}, "blockwise"),
        ({"score": regard.Location(64, 1024)}, "fused"),
        ({"mask": regard.window(4, 4), "bias": torch.zeros(997, 1009)}, "fused"),
        ({"normalize": "hard"}, "gather"),
    ],
)
def test_explain_returns_the_path_and_the_reason(more: dict, expected: str) -> None:
    q, k, v = torch.randn(2, H, 997, 64), torch.randn(2, H, 1009, 64), torch.randn(2, H, 1009, 64)
    if expected == "fused" and isinstance(more.get("mask"), type(regard.causal())):
        k, v = (k, v) if "bias" in more else (k[..., :997, :], v[..., :997, :])
    plan = regard.explain(q, k, v, **more)
    assert plan.path == expected
    assert plan.reason in str(plan)
    assert plan.flops > 0
    assert plan.bytes > 0


@pytest.mark.parametrize(
    "score", ["scaled_dot", regard.General(64, 64), regard.Additive(64, 64, 3)]
)
def test_explain_refuses_widths_that_attend_refuses(score: object) -> None:
    q, k = torch.randn(2, 300, 64), torch.randn(2, 300, 32)
    for function in (regard.explain, regard.attend):
        with pytest.raises((ValueError, RuntimeError)):
            function(q, k, q, score=score)  # type: ignore[operator]
