"""The gate: when a row counts as slower, and a real comparison of this tree with its commit."""

import shutil
import subprocess
import sys

import pytest

from benchmarks.gate import ROOT, Row


@pytest.mark.parametrize(
    ("this", "commit", "again", "slower"),
    [
        (1.06, 1.0, 1.0, False),  # within 7 %
        (1.08, 1.0, 1.0, True),
        (0.5, 1.0, 1.0, False),
        (1.15, 1.0, 1.1, False),  # the commit differs from itself by 10 %
        (1.3, 1.0, 1.1, True),
        (1.3, 1.1, 1.0, True),  # whichever of its two times is the longer one
    ],
)
def test_a_row_is_slower_by_more_than_seven_percent_and_the_spread(this, commit, again, slower):
    assert Row("row", this, commit, again).slower is slower


def test_a_row_that_does_not_run_is_lost():
    row = Row("row", error="this tree: AttributeError: gone")
    assert row.slower
    assert "AttributeError: gone" in row.line()


@pytest.mark.slow
def test_this_tree_is_compared_with_its_own_commit():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [sys.executable, "-m", "benchmarks.gate", "--against", "HEAD"]
    done = subprocess.run(
        [*command, "--only", "import regard"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| import regard")]
    _, _, commit, ratio, *_ = row.split("|")
    assert commit.strip().endswith("ms"), done.stderr
    assert 0.2 < float(ratio) < 5
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, cwd=ROOT)
    assert "gate-" not in listed.stdout
