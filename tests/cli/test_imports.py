"""One sentence of a command line loads nothing that it does not need."""

import subprocess
import sys

import pytest

import regard
from regard.training import Silent
from tests.conftest import COPY, TINY

# each takes from a tenth of a second to two
NEEDLESS = (
    "torch._dynamo",
    "torch._inductor",
    "torch.fx.experimental.symbolic_shapes",
    "sympy",
    "numba",
    "datasets",
    "pyarrow",
    "pandas",
    "sacrebleu",
    "matplotlib",
    "transformers",
    "tensorboard",
    "starlette",
)

LOADED = """
import sys
from regard.cli import main
status = main({arguments!r})
print("STATUS", status, *(name for name in {needless!r} if name in sys.modules))
"""


def loaded(*arguments):
    code = LOADED.format(arguments=list(map(str, arguments)), needless=NEEDLESS)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    *shown, last = done.stdout.splitlines()
    assert last.split()[:2] == ["STATUS", "0"], done.stderr
    return shown, last.split()[2:]


@pytest.fixture(scope="module")
def transformer_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "transformer"
    model = {"kind": "transformer", "preset": "tiny", "position": "learned"}
    regard.train({**COPY, "model": model}, run, progress=Silent())
    return run


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("translate", "copy"),
        ("see", "copy"),
        ("translate", "transformer"),
        ("see", "transformer"),
        ("predict", "classify"),
    ],
)
def test_a_sentence_loads_nothing_needless(command, kind, copy_run, transformer_run, tiny_run):
    run = {"copy": copy_run, "transformer": transformer_run}.get(kind) or tiny_run(kind)
    _, needless = loaded(command, run, "abc")
    assert needless == []


LOAD = """
import sys
import regard
for run in {runs!r}:
    regard.load(run)
print(*(name for name in {needless!r} if name in sys.modules))
"""


def test_loading_a_run_of_any_task_loads_nothing_needless(tiny_run):
    runs = [str(tiny_run(task)) for task in TINY]
    code = LOAD.format(runs=runs, needless=NEEDLESS)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.split() == []


def test_the_text_is_the_one_that_compiled_kernels_write(copy_run, tmp_path):
    (tmp_path / "lines.txt").write_text("hello you\n")
    from_text, _ = loaded("translate", copy_run, "hello you")
    from_file, kernels = loaded("translate", copy_run, tmp_path / "lines.txt")
    assert from_text == from_file
    assert "numba" in kernels  # or the test compares nothing
