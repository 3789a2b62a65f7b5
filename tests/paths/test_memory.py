"""No path holds M × N × D, measured in a fresh process."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="peak memory is read from /proc, which is Linux's"
)

PROGRAM = """
import ctypes, gc, sys
from pathlib import Path
import torch, regard

def status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024

def distance(q, k):
    return -(q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)

def attempt(length):
    x = [torch.randn(1, length, {width}, requires_grad=True) for _ in range(3)]
    score = regard.Additive({width}, {width}, {width})
    out = {call}
    torch.autograd.grad(out.sum(), x)

attempt(70)
gc.collect()
ctypes.CDLL("libc.so.6").malloc_trim(0)
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
attempt({length})
print(status("VmHWM") - before)
"""


def extra_bytes(call: str, *, length: int = 2048, width: int = 32) -> int:
    """Peak memory of a forward and backward pass above what the process held before."""
    program = PROGRAM.format(call=call, length=length, width=width)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


CELLS = 2048 * 2048 * 4  # bytes of one float32 map
CALLS = {
    "reference": ("regard.attend(*x, path='reference')", 8 * CELLS),
    "reference, additive": ("regard.attend(*x, score=score, path='reference')", 14 * CELLS),
    "fused": ("regard.attend(*x, path='fused')", 0.9 * CELLS),
    "banded": ("regard.attend(*x, mask=regard.window(99, 0), path='banded')", 0.9 * CELLS),
    "block_sparse": (
        "regard.attend(*x, mask=regard.block_sparse(torch.eye(64) > 0, 32), path='block_sparse')",
        0.9 * CELLS,
    ),
    "additive_kernel": ("regard.attend(*x, score=score, path='additive_kernel')", 3 * CELLS),
    "blockwise": ("regard.attend(*x, dropout=0.1, path='blockwise')", 14 * CELLS),
    "blockwise, own callable": ("regard.attend(*x, score=distance)", 15.5 * CELLS),
    "features": ("regard.attend_features(*x)", 0.9 * CELLS),
    "features, any mask": (
        "regard.attend_features(*x, mask=torch.rand(length, length) > 0.5)",
        14 * CELLS,
    ),
    "linear": ("regard.attend_linear(*x)", 0.9 * CELLS),
    "linear, causal": ("regard.attend_linear(*x, causal=True)", 0.9 * CELLS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CALLS))
def test_no_path_holds_a_number_for_every_pair_and_feature(name: str) -> None:
    call, bound = CALLS[name]
    assert bound < 0.5 * CELLS * 32  # so that M × N × D would show
    assert extra_bytes(call) <= bound
