import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import regard
from regard.cli import main
from regard.cli.app import app
from regard.system.extras import install_hint

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def command_that_fails(monkeypatch):
    """A command `fail MESSAGE`, for as long as a test takes."""
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])

    @app.command("fail")
    def fail(message: str) -> None:
        raise ValueError(message)


def test_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"regard {regard.__version__}\n"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(flag, capsys):
    assert main([flag]) == 0
    shown = capsys.readouterr().out
    for word in ("demo", "doctor", "--version", "--debug"):
        assert word in shown


def test_no_command_shows_the_help_and_counts_as_bad_usage(capsys):
    assert main([]) == 2
    assert "doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["conjure"], "conjure"),
        (["doctor", "--loud"], "--loud"),
        (["--quiet", "doctor"], "--quiet"),
        (["evaluate"], "Missing argument 'RUN'. (see regard evaluate --help)"),
        (["compare"], "Missing argument 'RECIPE|CONFIG.toml|MODEL'. (see"),
        (
            ["train", "Bahdanau"],
            "choose both, such as: regard train dates --set model.kind=bahdanau",
        ),
        (["data", "get"], "Missing argument 'NAME'. (see regard data get --help)"),
        (["compare", "dates", "--scores", ","], "regard: --decoders and what"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(arguments, word, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("regard: ")
    assert word in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.usefixtures("command_that_fails")
def test_a_failure_is_one_sentence_and_status_1(capsys):
    assert main(["fail", "two\n lines"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "regard: two lines\n"


@pytest.mark.usefixtures("command_that_fails")
@pytest.mark.parametrize("arguments", [["--debug", "fail", "why"], ["fail", "why", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(arguments, capsys):
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ValueError: why" in shown


@pytest.mark.usefixtures("command_that_fails")
def test_debug_after_two_dashes_is_an_argument(capsys):
    assert main(["fail", "--", "--debug"]) == 1
    assert capsys.readouterr().err == "regard: --debug\n"


def test_an_interrupt_ends_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])

    @app.command("wait")
    def wait() -> None:
        raise KeyboardInterrupt

    assert main(["wait"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_packages_the_command_names_the_extra(package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)  # as Python marks what cannot be imported
    assert main(["doctor"]) == 1
    shown = capsys.readouterr()
    assert shown.err == f"regard: this command needs {package}: {install_hint(package)}\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_gets_no_traceback(unbuffered):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "regard", "data", "list"]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert errors == ""


@pytest.mark.parametrize(
    ("command", "status"),
    [("no-such-command 2>&-", 2), ("--version >&-", 0), ("--version <&- >/dev/null", 0)],
)
def test_a_closed_stream_swallows_what_would_go_there(command, status):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    shell = ["sh", "-c", f'"{sys.executable}" -m regard {command}']
    done = subprocess.run(shell, env=environment, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def every_command() -> list[tuple[str, ...]]:
    commands = typer.main.get_command(app).commands
    groups = {name: command.commands for name, command in commands.items() if is_group(command)}
    inner = [(name, sub) for name, subs in groups.items() for sub in subs]
    return [*((name,) for name in commands), *inner]


def is_group(command: object) -> bool:
    return hasattr(command, "commands")


@pytest.mark.parametrize("words", [(), *every_command()], ids=" ".join)
def test_help_has_an_example_and_is_whole_in_80_columns(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert not words or "Example: " in shown
    assert "…" not in shown
    assert not [line for line in shown.splitlines()[1:] if line.endswith("...")]
    assert not re.search(r"<(bool|str|path|list)", shown)  # Python's types
    assert "[[" not in shown


def test_the_shell_completes_recipes(monkeypatch, capsys):
    monkeypatch.setenv("_REGARD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "regard train dat")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert main([]) == 0
    assert capsys.readouterr().out.split() == ["dates-book", "dates-transformer", "dates"]


@pytest.mark.parametrize("words", [["translate", "run"], ["see", "run"], ["train"]])
def test_an_argument_that_cannot_be_decoded_is_refused(words, capsys):
    broken = "9월".encode().decode("ascii", "surrogateescape")
    assert main([*words, broken]) == 2
    error = capsys.readouterr().err
    assert "is not text in the encoding of this terminal" in error
    assert "set PYTHONUTF8=1" in error


def test_an_error_of_the_system_names_the_file(tmp_path, monkeypatch, capsys):
    from regard.system.files import atomic_file

    @app.command("fill")
    def fill() -> None:
        with atomic_file(tmp_path / "a.bin"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    assert main(["fill"]) == 1
    assert capsys.readouterr().err == f"regard: {tmp_path / 'a.bin'}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []
