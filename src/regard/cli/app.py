"""The subcommands put together, and how the command fails: in one sentence."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from regard import __version__
from regard.cli.check import check
from regard.cli.claims import claims
from regard.cli.compare import compare
from regard.cli.data import data
from regard.cli.demo import demo
from regard.cli.doctor import doctor
from regard.cli.evaluate import evaluate
from regard.cli.export import export
from regard.cli.gallery import gallery
from regard.cli.options import Command
from regard.cli.output import one_line, prepare_streams
from regard.cli.predict import predict
from regard.cli.see import see
from regard.cli.serve import serve
from regard.cli.studio import studio
from regard.cli.train import train
from regard.cli.why import why
from regard.system.extras import with_hint

SURROGATE = re.compile("[\ud800-\udfff]")  # a byte that could not be decoded

app = typer.Typer(
    name="regard",
    rich_markup_mode=None,  # plain text, of which nothing is cut
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.",
)

TRANSLATE = "Translate texts: predict, for runs of the task translate."
COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (  # with an example each
    ("demo", demo, "regard demo"),
    ("train", train, "regard train dates --set training.epochs=1"),
    ("predict", predict, "regard predict runs/nsmc reviews.txt --json"),
    ("translate", predict, "regard translate runs/dates 'March 3rd, 2031' --n-best 3"),
    ("evaluate", evaluate, "regard evaluate runs/dates --json"),
    ("see", see, "regard see runs/dates 'March 3rd, 2031' --out dates.html"),
    ("why", why, "regard why runs/dates 'March 3rd, 2031' --said 3 --instead 8"),
    ("check", check, "regard check runs/dates"),
    ("compare", compare, "regard compare dates --decoders luong,transformer"),
    ("claims", claims, "regard claims scale order"),
    ("export", export, "regard export runs/dates --to onnx"),
    ("serve", serve, "regard serve runs/dates --port 8000"),
    ("gallery", gallery, "regard gallery --out gallery"),
    ("studio", studio, "regard studio runs/dates"),
    ("doctor", doctor, "regard doctor --json"),
)


def _print_version(requested: bool) -> None:
    if requested:
        print("regard", __version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def regard(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error.")
    ] = False,
) -> None:
    """Attention: every mechanism through one call, fast, exact and visible."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


for name, command, example in COMMANDS:
    about = TRANSLATE if name == "translate" else None
    app.command(name, cls=Command, help=about, epilog=f"Example: {example}")(command)
app.add_typer(data, name="data", epilog="Example: regard data get multi30k")


def run(arguments: Sequence[str]) -> int:
    """Run one command line; every error becomes one sentence on standard error and a status.

    `--debug` counts anywhere before a `--`, since one adds it after something failed.
    """
    prepare_streams()
    for argument in arguments:
        if SURROGATE.search(argument) and not os.path.lexists(argument):
            encoding = f"the encoding of this terminal, {sys.getfilesystemencoding()}"
            advice = "set PYTHONUTF8=1, or a locale of UTF-8"
            sentence = f"{one_line(ascii(argument))} is not text in {encoding}: {advice}"
            print(f"regard: {sentence}", file=sys.stderr)
            return 2
    before = [*arguments, "--"].index("--")
    debug = "--debug" in arguments[:before]
    plain = [*(a for a in arguments[:before] if a != "--debug"), *arguments[before:]]
    try:
        status = app(args=plain, prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # panics of compiled extensions are not Exceptions
        if isinstance(error, SystemExit) and not isinstance(error.code, str):
            return error.code or 0
        if debug:
            traceback.print_exc()
        elif sentence := _sentence(error):
            print(sentence, file=sys.stderr)
        return getattr(error, "exit_code", 1)


def _sentence(error: BaseException) -> str:
    """Return what went wrong, in one line; empty if the help was printed instead."""
    if isinstance(error, ModuleNotFoundError):
        error = with_hint("this command", error)
    if isinstance(error, OSError) and error.strerror:  # of the system; ours have a sentence alone
        return f"regard: {one_line(str(error.filename or 'standard output'))}: {error.strerror}"
    if not isinstance(error, typer.TyperException):
        return f"regard: {one_line(str(error)) or type(error).__name__}"
    ours = isinstance(error, typer.BadParameter) and error.param is None and error.message
    message = one_line(ours or error.format_message())
    context = getattr(error, "ctx", None)
    command = "regard" if context is None else context.command_path
    return f"regard: {message} (see {command} --help)" if message else ""
