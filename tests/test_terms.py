"""Korean texts render each term of the list in one way."""

import re
from pathlib import Path

import pytest

from regard.core.terms import TERMS, find_terms

ROOT = Path(__file__).parents[1]
AVOIDED = {pattern: term for term in TERMS for pattern in term.avoid}
PAGES = sorted([*ROOT.glob("*.ko.md"), *(ROOT / "docs").glob("**/*.ko.md")])
TEXTS = sorted((ROOT / "src/regard").glob("**/*texts.[jp][sy]"))


@pytest.mark.parametrize("file", [*PAGES, *TEXTS], ids=lambda file: str(file.relative_to(ROOT)))
def test_a_term_has_one_rendering(file: Path) -> None:
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    others = [
        f"line {number}: {found[0]!r}, use {term.korean!r}"
        for number, line in lines
        if not (file.name == "glossary.ko.md" and line.startswith("|"))  # lists other names
        for pattern, term in AVOIDED.items()
        if (found := re.search(pattern, line))
    ]
    assert others == []


def test_no_name_means_two_things() -> None:
    names = [name for term in TERMS for name in (term.name, *term.names) if name]
    assert len(names) == len(set(names))
    assert len({term.korean for term in TERMS}) == len(TERMS)


@pytest.mark.parametrize(
    ("words", "english"),
    [
        ("로컬", "local attention"),
        ("교차", "cross-attention"),
        ("NTM", "Neural Turing Machine"),
        ("일반화", "generalized attention"),
        ("context vector", "context vector"),
        ("bahdanau", "additive"),
    ],
)
def test_a_search_finds_a_term_by_any_of_its_names(words: str, english: str) -> None:
    assert english in [term.english for term in find_terms(words)]


@pytest.mark.parametrize("words", ["", "  ", "quux"])
def test_a_search_without_a_term_finds_nothing(words: str) -> None:
    assert find_terms(words) == []
