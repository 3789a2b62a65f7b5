"""flex_attention: its forward pass, compared on the CPU, without its compiler and with it."""

import shutil

import pytest
import torch

import regard
from regard.core.mask import Grid
from regard.paths import flex
from tests.paths.every_path.cases import MASKS, B, H, M, N

pytestmark = pytest.mark.filterwarnings(  # torch's own
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",
    "ignore:flex_attention called without torch.compile:UserWarning",
)
MASKED = [name for name in MASKS if name != "none"]


def inputs(heads=H, queries=M, keys=N):
    generator = torch.Generator().manual_seed(3)
    sizes = ((H, queries, 16), (heads, keys, 16), (heads, keys, 19))
    return [torch.randn(B, *size, generator=generator) for size in sizes]


def compare(tensors, mask):
    found = regard.attend(*tensors, mask=mask, path="flex")
    wide = [tensor.double() for tensor in tensors]
    truth = regard.attend(*wide, mask=mask, path="reference")
    torch.testing.assert_close(found.double(), truth, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("heads", [H, 1])
def test_it_computes_what_the_reference_computes(name, heads):
    with torch.compiler.set_stance("force_eager"):
        compare(inputs(heads), MASKS[name]())


@pytest.mark.parametrize("name", MASKED)
def test_skipped_blocks_are_hidden_and_whole_blocks_are_visible(name, monkeypatch):
    monkeypatch.setattr(flex, "SIZE", 4)
    mask = MASKS[name]()
    table = mask.dense(M, N, leading=2).expand(B, H, M, N)
    some, every = mask.block_map(Grid(M, N, 2, torch.device("cpu")), 4)
    some, every = (part.expand(B, H, *part.shape[-2:]) for part in (some, every))
    blocks = flex.block_mask(table, some, every)
    kinds = torch.zeros(B, H, 6, 8, dtype=torch.long)  # hidden, mixed, whole
    for kind, counts, order in (
        (1, blocks.kv_num_blocks, blocks.kv_indices),
        (2, blocks.full_kv_num_blocks, blocks.full_kv_indices),
    ):
        listed = torch.arange(8) < counts.unsqueeze(-1)
        kinds += kind * torch.zeros_like(kinds).scatter(-1, order.long(), listed.long())
    cells = kinds.repeat_interleave(4, -2).repeat_interleave(4, -1)[:, :, :M, :N]
    assert not table[cells == 0].any()
    assert table[cells == 2].all()
    assert (kinds == 0).equal(~some.expand(B, H, 6, 8))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.parametrize(
    "mask",
    [
        regard.window(30, 10) & regard.lengths(torch.tensor([0, 257])),
        regard.window(20, 5) | regard.global_tokens(3),
    ],
)
def test_compiled_it_skips_blocks_and_computes_the_same(mask):
    compare(inputs(1, 197, 301), mask)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mask": None}, "has no mask"),
        ({"bias": torch.zeros(M, N)}, "a bias is added"),
        ({"dropout": 0.5}, "dropout is not fused"),
    ],
)
def test_what_it_cannot_do_is_reported(more, message):
    with pytest.raises(ValueError, match=message):
        regard.attend(*inputs(), path="flex", **{"mask": regard.window(3, 3), **more})


def test_on_a_cpu_it_has_no_gradient_and_is_not_chosen():
    query, key, value = inputs()
    with pytest.raises(ValueError, match="no gradient on a CPU"):
        regard.attend(query.requires_grad_(), key, value, mask=regard.window(3, 3), path="flex")
    large = torch.zeros(2, 8, 1024, 64)
    plan = regard.explain(large, large, large, mask=regard.window(9, 9))
    assert plan.path == "banded"
