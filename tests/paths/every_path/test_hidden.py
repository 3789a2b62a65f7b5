"""Hidden numbers reach neither outputs nor gradients, on every path."""

import math

import pytest
import torch
from torch import Tensor

import regard
from tests.paths.every_path.cases import PATH_SCORE, SCORES, B, D, E, H, M, N, run


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_a_query_that_sees_nothing_gives_zeros_and_gets_none(path: str, score: str) -> None:
    torch.manual_seed(0)
    mask = regard.lengths(torch.tensor([0, N]), torch.tensor([M, 13]))
    found = run(path, SCORES[score](), mask, torch.float32)
    blind = ~mask.dense(M, N).any(-1)
    for b in range(B):
        assert torch.count_nonzero(found.output[b, :, blind[b]]) == 0
        assert torch.count_nonzero(found.gradients["query"][b, :, blind[b]]) == 0
    assert all(torch.isfinite(g).all() for g in found.gradients.values())
    assert torch.count_nonzero(found.output[1, :, :13]) == H * 13 * E


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("how", ["lengths", "window", "bias"])
@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_poison_in_keys_hidden_from_every_query_reaches_nothing(
    path: str, score: str, how: str, poison: float
) -> None:
    if how == "bias" and path in ("banded", "block_sparse", "capped", "additive_kernel"):
        pytest.skip(f"path {path!r} takes no bias")
    torch.manual_seed(0)
    module = SCORES[score]()
    query, key, value = torch.randn(M, D), torch.randn(N, D), torch.randn(N, E)
    hidden = torch.zeros(N, dtype=torch.bool)
    mask: regard.Mask | None = None
    bias = None
    if how == "lengths":
        hidden[11:] = True
        mask = regard.lengths(torch.tensor(11))
    elif how == "window":
        hidden[8:] = True
        mask = regard.window(2, 1, offset=-M + 7)
    else:
        hidden[::3] = True
        bias = torch.zeros(M, N).masked_fill(hidden, -math.inf)

    def outcome(k: Tensor, v: Tensor) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in (query, k, v)]
        parameters = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
        out = regard.attend(*leaves, score=module, mask=mask, bias=bias, path=path)  # type: ignore
        return [out, *torch.autograd.grad(out.square().sum(), [*leaves, *parameters])]

    clean = outcome(key.masked_fill(hidden[:, None], 0), value.masked_fill(hidden[:, None], 0))
    dirty = outcome(
        key.masked_fill(hidden[:, None], poison), value.masked_fill(hidden[:, None], poison)
    )
    for a, b in zip(clean, dirty, strict=True):
        assert torch.isfinite(b).all()
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
