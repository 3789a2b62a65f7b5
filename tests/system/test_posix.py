"""Systems without POSIX: nothing outside one file needs it, and that file has something else."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.system import posix
from tests.conftest import COPY

SOURCE = Path(posix.__file__).parents[1]
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "msvcrt", "winreg"}
FUNCTIONS = {
    "os": {
        "chroot", "fchmod", "fchown", "fork", "forkpty", "geteuid", "getpgid", "getuid", "killpg",
        "mkfifo", "nice", "register_at_fork", "sched_getaffinity", "setsid", "startfile", "uname",
    },
    "signal": {
        "SIGALRM", "SIGBREAK", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP",
        "SIGTSTP", "SIGUSR1", "SIGUSR2", "alarm", "pause", "setitimer", "sigwait",
    },
}  # fmt: skip


def posix_only(tree: ast.Module) -> Iterator[str]:
    """What a file uses of a module or function that not every system has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield node.module
        elif isinstance(node, ast.ImportFrom) and node.module in FUNCTIONS:
            names = FUNCTIONS[node.module]
            yield from (each.name for each in node.names if each.name in names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in FUNCTIONS.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_context"):
            yield ast.unparse(node)
        elif isinstance(node, ast.keyword) and node.arg in ("start_new_session", "preexec_fn"):
            yield node.arg


def test_one_file_alone_uses_what_not_every_system_has():
    uses = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if (found := list(posix_only(ast.parse(path.read_text("utf-8")))))
    }
    assert list(uses) == [str(Path("system", "posix.py"))]


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    import resource",
        "from fcntl import flock",
        "os.fork()",
        "from os import killpg",
        "signal.signal(signal.SIGHUP, f)",
        "multiprocessing.get_context('fork')",
        "subprocess.Popen(a, start_new_session=True)",
    ],
)
def test_a_use_is_noticed(code):
    assert list(posix_only(ast.parse(code)))


WITHOUT_POSIX = """
import builtins, importlib, os, pkgutil, signal, sys, tempfile
from pathlib import Path

# these use what they look for
import torch, torch.distributed.checkpoint, numpy, matplotlib, numba, rich, typer, uvicorn
import datasets, onnxruntime

MODULES, FUNCTIONS = {modules!r}, {functions!r}
real = builtins.__import__

def guarded(name, globals=None, *rest):
    importer = (globals or {{}}).get("__name__", "")
    if name.partition(".")[0] in MODULES and importer.startswith("regard"):
        raise ImportError(f"{{name}} is not on this system")
    return real(name, globals, *rest)

builtins.__import__ = guarded
for module, names in FUNCTIONS.items():
    for name in names:
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)

import regard
for module in pkgutil.walk_packages(regard.__path__, "regard."):
    if module.name != "regard.__main__" and ".templates" not in module.name:
        importlib.import_module(module.name)

from regard.system import files, posix, process
from regard.training.interrupt import Interrupt
from regard.web.server import run_server

home = Path(tempfile.mkdtemp())
with files.exclusive(home), files.atomic_file(home / "a.txt") as part:
    part.write_text("whole", encoding="utf-8")
with files.atomic_directory(home / "b") as part:
    (part / "c.txt").write_text("whole", encoding="utf-8")
numbers = []
process.in_processes(numbers.append, [1, 2, 3])
assert numbers == [1, 2, 3]
assert posix.processors() >= 1 and not posix.can_pause() and posix.fork_context() is None
posix.raise_file_limit(100)
with Interrupt() as interrupt:
    signal.raise_signal(signal.SIGINT)
    assert interrupt.requested
regard.attend(*torch.randn(3, 2, 70, 5), mask=regard.window(3, 3))
print("as everywhere")
"""

TRAIN = """
regard.train({config!r}, home / "run")
from regard.cli import main
assert main(["predict", str(home / "run"), "--text", "a b"]) == 0
print("as everywhere")
"""


def run_without_posix(code: str, home: Path) -> None:
    modules = MODULES - {"msvcrt", "winreg"}
    code = WITHOUT_POSIX.format(modules=modules, functions=FUNCTIONS) + code
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent), "LOGNAME": "somebody"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("as everywhere\n")


def test_every_module_is_imported_without_posix(tmp_path):
    run_without_posix("", tmp_path)


@pytest.mark.slow
def test_a_model_is_trained_and_used_without_posix(tmp_path):
    run_without_posix(TRAIN.format(config=COPY), tmp_path)
