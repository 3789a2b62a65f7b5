"""The arguments of torch's `scaled_dot_product_attention`, which on AVX2 mixes dtypes wrongly."""

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import regard
from regard.paths import flash

B, H, M, N, D = 2, 3, 31, 37, 5


class Spy(TorchFunctionMode):
    """Records the dtypes of query and mask of each call of the public function."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[tuple[torch.dtype, torch.dtype | None]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            mask = (kwargs or {}).get("attn_mask")
            self.dtypes.append((args[0].dtype, None if mask is None else mask.dtype))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("path", ["fused", "banded"])
def test_a_mask_is_boolean_or_of_the_dtype_of_the_query(monkeypatch, dtype, given, path):
    monkeypatch.setattr(flash, "kernels", lambda: None)  # then the public function is called
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, n, D, dtype=dtype).requires_grad_() for n in (M, N, N))
    masks = (regard.window(3, 2), regard.causal() & regard.lengths(torch.tensor([N, 7])))
    bias = torch.randn(M, N, dtype=given) if path == "fused" else None
    with Spy() as spy:
        for mask in masks:
            regard.attend(q, k, v, mask=mask, bias=bias, path=path).sum().backward()
    assert spy.dtypes
    for query, mask in spy.dtypes:
        assert mask in (None, torch.bool, query)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("path", ["reference", "fused", "blockwise"])
def test_a_bias_keeps_its_precision_beside_half_precision_inputs(monkeypatch, dtype, kernel, path):
    if not kernel:
        monkeypatch.setattr(flash, "kernels", lambda: None)
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, n, D).to(dtype) for n in (M, N, N))
    bias = 100 * torch.randn(M, N)
    bias[0] -= 1e5  # all keys of one query: in float16 this is −inf
    exact = regard.attend(q.double(), k.double(), v.double(), bias=bias.double(), path="reference")
    found = regard.attend(q, k, v, bias=bias, path=path)
    assert (found - exact).abs().max() < 0.05


@pytest.mark.parametrize("path", ["reference", "fused", "blockwise"])
def test_a_bias_beyond_the_range_of_the_scores_stays_finite(path):
    q, k, v = (torch.randn(B, H, n, D) for n in (M, N, N))
    bias = torch.full((M, N), -1e300, dtype=torch.float64)
    bias[:, :2] = 0.0
    found = regard.attend(q, k, v, bias=bias, path=path)
    assert torch.allclose(found, regard.attend(q, k[..., :2, :], v[..., :2, :]), atol=1e-6)
    assert regard.attend(q, k, v, bias=bias.fill_(-1e300), path=path).isfinite().all()
