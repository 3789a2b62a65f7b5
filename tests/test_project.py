"""What a stranger expects of a repository: its metadata, workflows and lines that install it."""

import re
import tomllib
from pathlib import Path

import pytest

import regard
from docs.tools.pages import ROOT
from regard.system import compatibility, torch_internals

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = ("3.11", "3.12", "3.13")
FROM_AN_INDEX = re.compile(
    r"pip3? install [^\n`]*(?<![\w/.-])['\"]?regard(\[[\w,]+\])?['\"]?(?![\w.-])"
)


def load(path: Path) -> dict:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load(path.read_text("utf-8"))


def test_no_dependency_has_an_upper_bound_and_torch_begins_with_the_oldest_tested_release():
    extras = PROJECT["optional-dependencies"].values()
    requirements = [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]
    assert [each for each in requirements if re.search("[<~!]|==", each)] == []
    assert f"torch>={compatibility.PLANNED[0].rpartition('.')[0]}" in requirements


def test_the_metadata_names_the_pythons_and_the_licence():
    version = "Programming Language :: Python :: 3."
    listed = [each for each in PROJECT["classifiers"] if each.startswith(version)]
    assert listed == [f"Programming Language :: Python :: {each}" for each in PYTHONS]
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert PROJECT["license"] == "MIT"


def test_doctor_finds_the_row_of_a_machine_and_says_so_where_there_is_none(monkeypatch):
    run = compatibility.Run("2.9.1", "3.12", "Linux x86_64", "2030-01-02", 1234, 5)
    monkeypatch.setattr(compatibility, "RUNS", (run,))
    monkeypatch.setattr(torch_internals, "RELEASE", "2.9")
    monkeypatch.setattr("platform.python_version_tuple", lambda: ("3", "12", "7"))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    row = compatibility.of_this_machine()["tested"]
    assert "torch 2.9, Python 3.12, Linux x86_64" in row
    assert "1,234 tests passed, 5 failed" in row
    assert "2.9.1 (2030-01-02)" in row
    rows = compatibility.table().splitlines()[2:]
    assert rows[0] == "| 2.8.0 | not run | not run | not run |"
    cell = "1,234 passed, **5 failed** (Linux x86_64, 2030-01-02)"
    assert rows[1] == f"| 2.9.1 | not run | {cell} | not run |"
    monkeypatch.setattr("platform.system", lambda: "Windows")
    assert "no run" in compatibility.of_this_machine()["tested"]


def test_the_workflows_test_every_python_and_every_release_of_the_table():
    folder = ROOT / ".github" / "workflows"
    tests, torch = load(folder / "tests.yml"), load(folder / "torch.yml")
    matrix = tests["jobs"]["test"]["strategy"]["matrix"]
    assert tuple(matrix["python"]) == PYTHONS
    assert {each.partition("-")[0] for each in matrix["system"]} == {"ubuntu", "macos", "windows"}
    assert {"wheel", "site", "lint"} <= set(tests["jobs"])
    cells = torch["jobs"]["test-with"]["strategy"]["matrix"]["include"]
    assert tuple(cell["torch"] for cell in cells) == compatibility.PLANNED
    for workflow in (tests, torch):
        assert workflow["permissions"] == {"contents": "read"}
        assert all(job["runs-on"] and job["timeout-minutes"] for job in workflow["jobs"].values())


def test_the_targets_of_make_in_workflows_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        lines = re.findall(r"run: make (.*)", path.read_text("utf-8"))
        assert {
            word for line in lines for word in line.split() if re.fullmatch("[a-z-]+", word)
        } <= targets


def test_the_forms_of_issues_are_complete():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = load(path)
        if path.stem != "config":
            assert form["name"]
            assert form["description"]
            assert all(part["id"] and part["attributes"]["label"] for part in form["body"])


def test_the_citation_names_this_version():
    citation = load(ROOT / "CITATION.cff")
    assert citation["version"] == regard.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["title"].startswith("regard")


@pytest.mark.parametrize(
    ("line", "is_from_an_index"),
    [
        ("pip install regard", True),
        ("pip install 'regard[all]'", True),
        ('%pip install --quiet "regard[export,web]"', True),
        ("pip install -c constraints.txt '.[all]'", False),
        ("pip install regard-0.1.0-py3-none-any.whl", False),
        ("pip install dist/regard-*.whl", False),
    ],
)
def test_a_line_that_installs_from_an_index_is_noticed(line, is_from_an_index):
    assert bool(FROM_AN_INDEX.search(line)) == is_from_an_index


def test_no_line_installs_from_an_index_where_the_project_is_not():
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.ipynb")]
    files += [ROOT / "Dockerfile", ROOT / "Makefile"]
    lines = {
        str(path.relative_to(ROOT)): found[0]
        for path in files
        if (found := FROM_AN_INDEX.search(path.read_text("utf-8")))
    }
    assert lines == {}
