"""The glossary: its calls run, and both languages have the same rows."""

import re
from pathlib import Path
from typing import Any

import pytest

from regard.core.names import ALIASES
from regard.core.score import BUILDERS

DOCS = Path(__file__).parents[1] / "docs"
LANGUAGES = ("glossary.md", "glossary.ko.md")


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The cells of all rows of all tables, headings left out."""
    lines = [line for line in text(name).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("term", "용어")]


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_call_runs(name):
    namespace: dict[str, Any] = {}
    (setup,) = re.findall(r"```python\n(.*?)```", text(name), re.DOTALL)
    exec(setup, namespace)
    calls = {row[3] for row in rows(name)}
    assert len(calls) > 30
    for call in calls:
        assert re.fullmatch(r"`[^`]+`", call), call
        assert eval(call.strip("`"), namespace) is not None, call


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
