"""The glossary and the page "Shown by": their calls and commands run, and their tests exist."""

import ast
import contextlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.core.names import ALIASES
from regard.core.score import BUILDERS
from regard.data import data_folder
from regard.recipes import load_recipe
from tests.conftest import ONE_STEP, TINY

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LANGUAGES = ("glossary.md", "glossary.ko.md")
SLOW = {"claims", "gallery", "dates-book"}  # words of commands that take seconds


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The cells of all rows of all tables, headings left out."""
    lines = [line for line in text(name).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("term", "용어", "name")]


def namespace(name: str = LANGUAGES[0]) -> dict[str, Any]:
    """What the first lines of the glossary define."""
    found: dict[str, Any] = {}
    (setup,) = re.findall(r"```python\n(.*?)```", text(name), re.DOTALL)
    exec(setup, found)
    return found


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_call_runs(name):
    defined = namespace(name)
    calls = {row[3] for row in rows(name)}
    assert len(calls) > 30
    for call in calls:
        assert re.fullmatch(r"`[^`]+`", call), call
        assert eval(call.strip("`"), defined) is not None, call


def test_both_languages_have_the_same_terms_and_calls():
    english, korean = (rows(name) for name in LANGUAGES)
    assert [(row[0], row[1]) for row in english] == [(row[1], row[0]) for row in korean]
    assert [row[3] for row in english] == [row[3] for row in korean]


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_alias_of_a_score_is_listed_with_its_score(name):
    english = 0 if name == "glossary.md" else 1
    also = {row[english]: row[4] for row in rows(name)}
    titles = {"dot": "dot product", "scaled_dot": "scaled dot product"}
    titles["cosine"] = "cosine similarity"
    for alias, score in ALIASES.items():
        if score in BUILDERS:
            assert f"`{alias}`" in also[titles.get(score, score)]


# ------------------------------------------------------------------------------ shown by

SHOWN = {row[2].strip("`"): row for row in rows("shown_by.md")}
COMMANDS = [shlex.split(shown)[1:] for shown in SHOWN if shown.startswith("regard ")]


def run_of(words: list[str]) -> str:
    """The run directory that a command of `regard train` writes."""
    return words[words.index("--out") + 1] if "--out" in words else f"runs/{words[1]}"


@pytest.fixture(scope="module")
def regard_in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], int]:
    """Run a command, with one step where it trains, after the one that trains its run."""
    folder = tmp_path_factory.mktemp("shown")

    def call(words: list[str]) -> int:
        settings: list[str] = []
        if words[0] in ("train", "compare"):
            task = load_recipe(words[1])["task"]
            settings = [part for each in (*TINY[task][1], *ONE_STEP) for part in ("--set", each)]
        elif words[0] in ("see", "predict") and not (folder / words[1]).exists():
            assert call(next(w for w in COMMANDS if w[0] == "train" and run_of(w) == words[1])) == 0
        with contextlib.chdir(folder):
            return main([*words[:2], *settings, *words[2:]])  # its own settings win

    return call


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(w, marks=[pytest.mark.slow] if SLOW & {*w} else [], id=" ".join(w[:4]))
        for w in COMMANDS
    ],
)
def test_every_command_that_shows_something_runs(words, regard_in_a_folder, capsys):
    if "dates-book" in words and not (data_folder() / "dates_book" / "date.txt").exists():
        pytest.skip("needs date.txt: regard data get dates-book")
    assert regard_in_a_folder(words) == 0, capsys.readouterr().err


def test_every_call_that_shows_something_runs():
    defined = namespace()
    calls = [shown for shown in SHOWN if not shown.startswith("regard ")]
    assert len(calls) > 20
    for call in calls:
        assert eval(call, defined) is not None, call


@pytest.mark.parametrize("row", SHOWN.values(), ids=lambda row: row[0])
def test_the_test_of_every_row_exists(row):
    file, _, name = row[3].strip("`").partition("::")
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}
    assert re.search("[가-힣]", row[1]) or row[0] == "AttentionSeq2seq"
