"""e^(c·tanh x) and its gradient: compiled loops and torch against the formula."""

import pytest
import torch

from regard.paths.kernels import softcap


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("size", [1, 17, 9001])
def test_both_versions_are_the_formula(
    compiled: bool,
    dtype: torch.dtype,
    tolerance: float,
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not compiled:
        monkeypatch.setattr(softcap, "available", lambda tensor: False)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, dtype=torch.float64, generator=generator).mul(3).to(dtype)
    d = torch.randn(size, dtype=torch.float64, generator=generator).to(dtype)
    x[0] = 1e4  # far beyond where tanh is 1
    t = torch.tanh(x.double())
    powers = torch.exp(50.0 * t)
    for gradient in (False, True):
        scores, slopes = (torch.zeros(size + softcap.ROOM, dtype=dtype) for _ in range(2))
        scores[:size], slopes[:size] = x, d
        if gradient:
            softcap.gradients_(scores[:size], slopes[:size], 50.0)
            truth = d.double() * powers / torch.cosh(x.double()).square()
            error = (slopes[:size].double() - truth).abs() / powers
            assert float(error.max()) < tolerance
        else:
            softcap.exponentials_(scores[:size], 50.0)
        error = (scores[:size].double() / powers - 1).abs()
        assert float(error.max()) < tolerance
