"""Looking at large maps takes little memory."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from regard.core import blocks
from regard.core.map import AttentionMap
from tests.core.map.maps import E, N, inputs, numbers


@pytest.mark.parametrize(
    "look",
    [
        lambda map: map.pooled(2),
        lambda map: map.topk(2).values,
        lambda map: map.entropy(),
        lambda map: map[..., 3],
        lambda map: map.edges(top_k=1).weight,
    ],
)
def test_looking_at_a_large_map_keeps_no_block_for_backward(
    look: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 4 * 23 * 223)  # ten blocks
    query, key = numbers(211, 2).requires_grad_(), numbers(223, 2, seed=1).requires_grad_()
    map = regard.attend(query, key, key, mask=regard.causal(), return_map=True).map
    kept = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        seen = look(map)
    assert kept < 211 * 223 / 10
    found = torch.autograd.grad(seen.square().sum(), (query, key))
    whole = AttentionMap(lambda rows: map.dense()[rows], None, (211, 223))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ELEMENTS", 10**6)
        truth = torch.autograd.grad(look(whole).square().sum(), (query, key))
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a, b)


def test_a_dense_map_is_a_tensor_of_its_own() -> None:
    q, k, _ = inputs()
    map = regard.attend(q, k, numbers(3, N, E), return_map=True).map  # three equal maps
    dense = map.dense()
    dense[0] = 0
    assert torch.count_nonzero(dense[1]) > 0


LONG = """
import torch, regard
from pathlib import Path
def peak():  # of this process alone; ru_maxrss begins with the parent's
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(65536, 4)
with torch.no_grad():
    output, map = regard.attend(x, x, x, return_map=True)
    window = map[40000:40064, 39000:39064]
    rows = torch.softmax(x[40000:40064] @ x.T / 2, -1)
    assert torch.allclose(window, rows[:, 39000:39064], atol=1e-7)
    assert map[::4096, :8].shape == (16, 8)
    pooled = map.pooled(256)
    assert pooled.shape == (256, 256)
    strip = torch.softmax(x[512:768] @ x.T / 2, -1)
    assert torch.allclose(pooled[2], strip.amax(0).view(256, 256).amax(-1), atol=1e-7)
print(peak())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_map_of_four_billion_cells_is_explored_within_one_gigabyte() -> None:
    source = str(Path(regard.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", LONG], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 10**9
