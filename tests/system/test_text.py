"""Text is UTF-8 with a line feed at the end of a line, whatever the system and its locale."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

SOURCE = Path(regard.__file__).parent
MODE = re.compile("[rwax+t]+")  # of text


def implicit(tree: ast.AST) -> Iterator[str]:
    """The calls that leave an encoding or a newline to the system."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        module, _, name = ast.unparse(call.func).rpartition(".")
        arguments = [each.value if isinstance(each, ast.Constant) else None for each in call.args]
        options = {each.arg for each in call.keywords}
        writes, needs_encoding = False, False
        if module and name in ("read_text", "write_text"):
            writes = name == "write_text"
            needs_encoding = len(arguments) <= writes
        elif name == "open" and module != "os":
            modes = arguments[:1] if module else (arguments[1:2] or ["r"])
            needs_encoding = bool(modes) and bool(MODE.fullmatch(str(modes[0])))
            needs_encoding |= not arguments
            writes = needs_encoding and bool(set(str(modes[0]) if modes else "r") & set("wax"))
        elif module == "subprocess":
            needs_encoding = bool(options & {"text", "universal_newlines"})
        if (needs_encoding and "encoding" not in options) or (writes and "newline" not in options):
            yield f"{call.lineno}: {ast.unparse(call)}"


def test_no_encoding_and_no_newline_is_left_to_the_system():
    calls = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if (found := list(implicit(ast.parse(path.read_text("utf-8")))))
    }
    assert calls == {}


@pytest.mark.parametrize(
    ("code", "is_implicit"),
    [
        ("path.read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(text, encoding='utf-8')", True),
        ("path.write_text(text, encoding='utf-8', newline='\\n')", False),
        ("open(path)", True),
        ("open(path, 'rb')", False),
        ("path.open('a', encoding='utf-8')", True),
        ("path.open(encoding='utf-8')", False),
        ("path.open('w', encoding='utf-8', newline='\\n')", False),
        ("subprocess.run(command, text=True)", True),
    ],
)
def test_what_is_implicit_is_noticed(code, is_implicit):
    assert bool(list(implicit(ast.parse(code)))) == is_implicit


@pytest.mark.parametrize("encoding", ["ascii", "euc_kr", "cp1252"])
def test_pipes_are_utf_8_in_another_locale(encoding, copy_run):
    code = f"""
import io, sys
for name in ("stdin", "stdout", "stderr"):  # as Python opens them in such a locale
    stream = getattr(sys, name)
    setattr(sys, name, io.TextIOWrapper(stream.buffer, {encoding!r}))
from regard.cli import main
main(["predict", {str(copy_run)!r}, "--json", "-"])
main(["train", "nö 한국어"])
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONIOENCODING"}
    environment["PYTHONPATH"] = str(SOURCE.parent)
    command = [sys.executable, "-c", code]
    text = "한국어 naïve 👩‍💻\n"
    done = subprocess.run(command, env=environment, input=text.encode(), capture_output=True)
    assert "한국어 naïve 👩‍💻" in done.stdout.decode("utf-8"), done.stderr
    assert "nö 한국어" in done.stderr.decode("utf-8")
