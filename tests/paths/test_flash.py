"""Without torch's private flash kernels the public function takes over, with the same results."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

import regard
from regard.paths import flash, tile_attention
from regard.paths.tile_attention import attend_tiles
from tests.paths.tiles.tilings import SCALE, TILINGS, assert_same, blind_mask, inputs, random

ABSENT = """
import torch

class Namespace(type(torch.ops.aten)):
    def __getattr__(self, name):
        if "flash_attention_for_cpu" in name:
            raise AttributeError(name)
        return super().__getattr__(name)

for name in [name for name in vars(torch.ops.aten) if "flash_attention_for_cpu" in name]:
    delattr(torch.ops.aten, name)

torch.ops.aten.__class__ = Namespace
import regard
q, k, v = (torch.randn(2, 3, 70, 5, requires_grad=True) for _ in range(3))
for mask in (None, regard.causal(), regard.window(3, 0), torch.rand(70, 70) > 0.2):
    output = regard.attend(q, k, v, mask=mask)
    expected = regard.attend(q, k, v, mask=mask, path="reference")
    torch.testing.assert_close(output, expected)
    torch.autograd.grad(output.sum(), (q, k, v))
from regard.paths import flash
assert flash.kernels() is None
"""


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "kernels", lambda: None)


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize("name", TILINGS)
def test_tiles_give_the_formula_without_the_kernels(name: str):
    assert_same(TILINGS[name], inputs())


@pytest.mark.usefixtures("absent")
def test_second_derivatives_without_the_kernels():
    tiles = TILINGS["a rectangle and a triangle"]
    tensors = inputs(width=2, out_width=2)
    assert torch.autograd.gradgradcheck(
        lambda *t: attend_tiles(*t, tiles, SCALE), tensors, fast_mode=True
    )


@pytest.mark.usefixtures("absent")
def test_hidden_nan_without_the_kernels():
    q, k, v = tensors = inputs()
    with torch.no_grad():
        q[:, :, 3] = k[:, :, 5] = v[:, :, 5] = torch.nan
    tiles = [tile_attention.Tile(slice(None), slice(None), slice(None), blind_mask())]
    output = attend_tiles(q, k, v, tiles, SCALE)
    gradients = torch.autograd.grad(output, tensors, random(*output.shape))
    assert all(bool(t.isfinite().all()) for t in (output, *gradients))


def test_results_agree_with_those_of_the_kernels(monkeypatch: pytest.MonkeyPatch):
    assert flash.kernels() is not None

    def results() -> list[Tensor]:
        tensors = [random(2, 4, 90, 8, dtype=torch.float32, seed=i) for i in range(3)]
        leaves = [t.requires_grad_() for t in tensors]
        output = regard.attend(*leaves, mask=regard.causal() & regard.window(17, 0))
        return [output, *torch.autograd.grad(output, leaves, random(*output.shape).float())]

    expected = results()
    monkeypatch.setattr(flash, "kernels", lambda: None)
    for one, other in zip(results(), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_regard_imports_and_attends_with_a_torch_that_has_no_such_kernels():
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
