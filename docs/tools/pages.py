"""Run the Python blocks of pages of the guide, and keep the pictures that they write.

The blocks of a page run in order, in one namespace and one directory. `make pictures` runs them on
models trained by the commands that the pages show, and puts what they drew beside the pages.
"""

import contextlib
import doctest
import io
import os
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDERS = ("start", "guide", "how_to")  # of docs/: pages whose blocks share a namespace
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PRINTS = re.compile(r"#\s*prints:?\s+(.+?)\s*$", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


def guide_pages() -> list[Path]:
    """Return the English pages whose blocks run in order."""
    found = [page for folder in FOLDERS for page in (ROOT / "docs" / folder).glob("*.md")]
    return sorted(page for page in found if not page.name.endswith(".ko.md"))


def blocks(text: str, *languages: str) -> list[str]:
    """Return the code of the fenced blocks in one of these languages."""
    found = FENCE.findall(text)
    return [textwrap.dedent(code) for _, language, code in found if language in languages]


def run_block(code: str, namespace: dict[str, Any] | None = None) -> None:
    """Run a block; compare its output with the output shown in it."""
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, namespace, "block", None, 0)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        report = io.StringIO()
        doctest.DocTestRunner(optionflags=flags).run(test, out=report.write, clear_globs=False)
        namespace.update(test.globs)
        assert not report.getvalue(), report.getvalue()
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<block>", "exec"), namespace)
    lines = iter([line.strip() for line in printed.getvalue().splitlines()])
    for expected in PRINTS.findall(code):
        assert expected in lines, f"expected {expected!r} here:\n{printed.getvalue()}"


def run_page(page: Path, runs: Path) -> None:
    """Run the blocks of a page in the working directory, where `runs/` are the trained models."""
    Path("examples").symlink_to(ROOT / "examples")
    Path("runs").mkdir()
    for run in runs.iterdir():  # what a page trains goes to its own directory
        Path("runs", run.name).symlink_to(run)
    namespace = {"__name__": "__main__"}
    for code in blocks(page.read_text("utf-8"), "python"):
        run_block(code, namespace)


def draw(page: Path, runs: Path) -> list[Path]:
    """Run a page and put the pictures that it wrote and shows beside it, in 256 colours."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run_page(page, runs)
        shown = [name for name in PICTURE.findall(page.read_text("utf-8")) if Path(name).is_file()]
        for name in shown:
            picture = Image.open(name).convert("RGB").quantize(256, dither=Image.Dither.NONE)
            picture.save(page.parent / name, optimize=True)
        return [page.parent / name for name in shown]


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    for page in [Path(name).resolve() for name in sys.argv[1:]] or guide_pages():
        print(page.relative_to(ROOT), *(file.name for file in draw(page, ROOT / "runs")))
