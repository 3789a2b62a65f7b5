"""How the kernels run: threads, forks, caches, memory, and machines without numba."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from regard.paths.kernels import additive_attention, available, feature_attention, kernel_cache
from regard.paths.kernels.compile import Kernel

START = """
import sys
import torch
from regard.paths.kernels import additive_attention, additive_scores, available
torch.manual_seed(0)
query, key, value, weight = (torch.randn(s) for s in ((2, 7, 5), (2, 11, 5), (2, 11, 3), (5,)))
wanted = torch.softmax(torch.tanh(query[:, :, None] + key[:, None]) @ weight, -1) @ value
"""


SCORES = """
scores = additive_scores(query[:, :1], key, weight)
torch.testing.assert_close(scores, torch.tanh(query[:, :1, None] + key[:, None]) @ weight)
"""


NO_NUMBA = 'import sys; sys.modules["numba"] = None'


def run(program, warnings="error", before="", **environment):
    """What a program prints in a fresh process; it must not fail, nor warn unless it may."""
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-c", before + START + program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    assert warnings != "error" or done.stderr == ""
    return done.stdout + done.stderr


def everything(seed=0):
    """Contexts and gradients of both kernels, at sizes that several threads share."""
    draw = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(2, length, 37, generator=draw).requires_grad_() for length in (61, 97, 97)
    )
    weight = torch.randn(37, generator=draw).requires_grad_()
    first = additive_attention(query, key, weight, value)
    second = feature_attention(query, key, value, 5.0)
    inputs = query, key, weight, value
    grad = torch.randn(first.shape, generator=draw)
    return (
        first,
        second,
        *torch.autograd.grad(first, inputs, grad),
        *torch.autograd.grad(second, (query, key, value), grad),
    )


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_bits_are_the_same_in_every_run():
    for one, other in zip(everything(), everything(), strict=True):
        assert torch.equal(one, other)


def test_the_bits_do_not_depend_on_the_number_of_threads(one_thread):
    alone = everything()
    torch.set_num_threads(2)
    for one, other in zip(alone, everything(), strict=True):
        assert torch.equal(one, other)


def test_eight_python_threads_at_once_get_what_one_gets():
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(everything, [0, 1] * 8))
    for seed in (0, 1):
        wanted = everything(seed)
        for results in found[seed::2]:
            for one, other in zip(results, wanted, strict=True):
                assert torch.equal(one, other)


def test_a_forked_child_gets_the_same():
    run("""
import os
def check():
    out = additive_attention(query, key, weight, value)
    torch.testing.assert_close(out, wanted)
check()
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    assert not available(query)
    check()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
check()
""")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    locator = "UserProvidedCacheLocator"
    run(SCORES, NUMBA_CACHE_DIR=str(blocked), NUMBA_CACHE_LOCATOR_CLASSES=locator)


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "one bit flipped": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    "checksum flipped": lambda content: bytes([content[0] ^ 128]) + content[1:],
    "empty": lambda content: b"",
    "garbage": lambda content: b"garbage" * 1000,
}
WARNING = "the kernel cache .* is damaged; compiling the kernel again"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_compiled_again_and_replaced(tmp_path, monkeypatch, damage):
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "_warned", False)
    monkeypatch.setattr("regard.paths.kernels.compile.parallel", lambda: False)

    def double():
        """A new kernel, as in a new process."""
        array = np.ones(3, np.float32)
        Kernel(twice, "void(T[::1])")(1, array)
        assert array.tolist() == [2, 2, 2]

    double()
    (path,) = tmp_path.rglob("*.kernel")  # and none of numba's files, which have no checksum
    intact = path.read_bytes()
    path.write_bytes(DAMAGES[damage](intact))
    with pytest.warns(RuntimeWarning, match=WARNING):
        double()
    double()
    path.write_bytes(DAMAGES[damage](intact))
    double()  # the warning is given once


def twice(array):
    for i in range(len(array)):
        array[i] *= 2


@pytest.mark.slow
def test_a_damaged_cache_of_the_real_kernels_is_replaced(tmp_path):
    """Numba's own cache would end the process, or run machine code with a bit flipped."""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    run(SCORES, **environment)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.suffix for path in files} == {".kernel"}
    for damage in DAMAGES.values():
        for path, intact in files.items():
            path.write_bytes(damage(intact))
        errors = run(SCORES, warnings="default", **environment)
        assert len(re.findall(f"RuntimeWarning: {WARNING}", errors)) == 1
        run(SCORES, **environment)


def test_without_numba_the_formula_runs():
    program = """
assert not available(query)
torch.testing.assert_close(additive_attention(query, key, weight, value), wanted)
"""
    run(program, before=NO_NUMBA)


def test_importing_the_kernels_imports_neither_numba_nor_dynamo():
    run('assert not {"numba", "torch._dynamo"} & set(sys.modules)')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "length", "kilobytes"), [("compiled", 2048, 2e5), ("formula", 2500, 9e5)]
)
def test_no_kernel_holds_a_cell_for_every_pair_and_unit(way, length, kilobytes):
    """M × N × hidden would be a gigabyte in the first case, 1.6 in the second."""
    program = f"""
from pathlib import Path
def peak():  # of this process alone; ru_maxrss begins with the parent's
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
from regard.paths.kernels import feature_attention
def attend(length, hidden):
    query, key, value = (torch.randn(1, length, hidden, requires_grad=True) for _ in range(3))
    out = additive_attention(query, key, torch.randn(hidden, requires_grad=True), value)
    out = out + feature_attention(query, key, value)
    out.sum().backward()
attend(300, 64)  # in several blocks, which import more
before = peak()
attend({length}, 64)
print(peak() - before)
"""
    assert int(run(program, before=NO_NUMBA if way == "formula" else "")) < kilobytes


def test_only_floats_on_the_cpu_are_taken():
    pytest.importorskip("numba")
    assert available(torch.zeros(1))
    assert available(torch.zeros(1, dtype=torch.bfloat16))
    assert not available(torch.zeros(1, dtype=torch.int64))
    assert not available(torch.zeros(1, device="meta"))
