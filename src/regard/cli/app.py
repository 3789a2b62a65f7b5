"""The subcommands put together, and how the command fails: in one sentence."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from regard import __version__
from regard.cli.bench import bench
from regard.cli.classify import classify
from regard.cli.compare import compare
from regard.cli.data import data
from regard.cli.demo import demo
from regard.cli.doctor import doctor
from regard.cli.evaluate import evaluate
from regard.cli.gallery import gallery
from regard.cli.generate import generate
from regard.cli.pair import pair
from regard.cli.recommend import recommend
from regard.cli.see import see
from regard.cli.train import train
from regard.cli.translate import translate

app = typer.Typer(
    name="regard",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failed, 2 wrongly called.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print("regard", __version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def regard(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Attention: every mechanism through one call, fast, exact and visible."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


app.command()(classify)
app.command()(compare)
app.command()(demo)
app.command()(doctor)
app.command()(evaluate)
app.command()(gallery)
app.command()(generate)
app.command()(pair)
app.command()(recommend)
app.command()(see)
app.command()(train)
app.command()(translate)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")


def run(arguments: Sequence[str]) -> int:
    """Run one command line; every error becomes one sentence on standard error and a status.

    `--debug` counts wherever it stands before a `--`, since one adds it after something failed.
    """
    _open_streams()
    before = [*arguments, "--"].index("--")
    debug = "--debug" in arguments[:before]
    plain = [*(a for a in arguments[:before] if a != "--debug"), *arguments[before:]]
    try:
        status = app(args=plain, prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:  # the reader, such as `head`, has seen enough; typer also says 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        elif sentence := _sentence(error):
            print(sentence, file=sys.stderr)
        return getattr(error, "exit_code", 1)


def _open_streams() -> None:
    """Put nothing in the place of closed streams: Python would print errors among the data."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _sentence(error: Exception) -> str:
    """What went wrong, in one line; empty if typer has shown the help instead."""
    if not isinstance(error, typer.TyperException):
        return f"regard: {_one_line(str(error)) or type(error).__name__}"
    ours = isinstance(error, typer.BadParameter) and error.param is None and error.message
    message = _one_line(ours or error.format_message())
    context = getattr(error, "ctx", None)
    command = "regard" if context is None else context.command_path
    return f"regard: {message} (see {command} --help)" if message else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
