"""Efficient attention in any layout, in many threads, in memory that grows with the length."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import regard
from regard.paths.linear import linear
from tests.paths.linear.textbook import assert_close, random


def test_heads_in_any_layout_give_the_same_answer():
    torch.manual_seed(0)
    apart = [random(2, 31, 3, 5).transpose(1, 2).requires_grad_() for _ in range(3)]
    close = [x.detach().contiguous().requires_grad_() for x in apart]
    for causal in (False, True):
        outputs = linear(*apart, causal=causal), linear(*close, causal=causal)
        assert_close(*outputs)
        pairs = (
            torch.autograd.grad(o.sum(), x) for o, x in zip(outputs, (apart, close), strict=True)
        )
        for got, want in zip(*pairs, strict=True):
            assert_close(got, want)


def test_eight_threads_at_once_get_the_same_answer():
    tensors = [random(3, 47, 5) for _ in range(3)]
    expected = linear(*tensors, causal=True)
    with ThreadPoolExecutor(8) as pool:
        for output in pool.map(lambda _: linear(*tensors, causal=True), range(8)):
            assert torch.equal(output, expected)


MEMORY = """
import sys, torch
from pathlib import Path
def peak():  # of this process alone; ru_maxrss begins with the parent's
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
from regard.paths.linear import linear
length = 1 << 15
tensors = [torch.randn(length, 8, requires_grad=True) for _ in range(3)]
linear(*(x[:100] for x in tensors), causal=True).sum().backward()
before = peak()
linear(*tensors, causal=True).sum().backward()
linear(*tensors).sum().backward()
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_is_linear_in_the_length():
    """32,768 positions: one map of them would take 4 GB, one context for each of them 8 MB."""
    source = str(Path(regard.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert int(done.stdout) < 60_000  # kilobytes
