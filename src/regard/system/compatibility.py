"""The releases of torch and Python that the tests have run with, as docs/compatibility.md shows.

`make test-with TORCH=2.15.0 PYTHON=python3.13` runs them and prints the line to put here.
"""

import platform
from typing import NamedTuple

from regard.system import torch_internals


class Run(NamedTuple):
    """One run of the tests."""

    torch: str
    python: str
    system: str
    date: str
    passed: int
    failed: int


RUNS = (
    Run("2.8.0", "3.11", "Linux x86_64", "2026-11-18", 3890, 180),
    Run("2.15.0", "3.13", "Linux x86_64", "2026-11-18", 5055, 77),
)

PLANNED = ("2.8.0", "2.10.0", "2.13.0", "2.15.0")


def of_this_machine() -> dict[str, str]:
    """The row of the table that fits this torch, Python and system, and what is slower here."""
    python = ".".join(platform.python_version_tuple()[:2])
    system = f"{platform.system()} {platform.machine()}"
    name = f"torch {torch_internals.RELEASE}, Python {python}, {system}"
    row = next((run for run in RUNS if _fits(run, python, system)), None)
    if row is None:
        known = sorted({_release(run.torch) for run in RUNS}, key=_numbers)
        tested = f"{name}: no run; torch {', '.join(known)} have some"
    else:
        outcome = f"{row.passed:,} tests passed, {row.failed} failed"
        tested = f"{name}: {outcome} with {row.torch} ({row.date})"
    slower = torch_internals.off()
    rows = torch_internals.TABLE
    private = "; ".join(f"{each} is off, in its place {rows[each].instead}" for each in slower)
    return {"tested": tested, "private functions": private or "all in use"}


def table() -> str:
    """The runs as a table in Markdown, with a cell for each torch and Python.

    >>> print(table().splitlines()[1])
    |---|---|---|---|
    """
    pythons = sorted({run.python for run in RUNS} | {"3.11", "3.12", "3.13"}, key=_numbers)
    lines = ["| torch | " + " | ".join(f"Python {each}" for each in pythons) + " |"]
    lines.append("|---" * (len(pythons) + 1) + "|")
    for version in sorted({run.torch for run in RUNS} | set(PLANNED), key=_numbers):
        cells = [
            "<br>".join(_cell(run) for run in RUNS if run[:2] == (version, python)) or "not run"
            for python in pythons
        ]
        lines.append(f"| {version} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _fits(run: Run, python: str, system: str) -> bool:
    return (_release(run.torch), run.python, run.system) == (
        torch_internals.RELEASE,
        python,
        system,
    )


def _cell(run: Run) -> str:
    failed = f", **{run.failed} failed**" if run.failed else ", none failed"
    return f"{run.passed:,} passed{failed} ({run.system}, {run.date})"


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
