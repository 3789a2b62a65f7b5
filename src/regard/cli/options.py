"""Options that several commands share, and short forms to declare others."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand


class Command(TyperCommand):
    """A command whose help has the names of arguments alone, without their Python types."""

    def get_params(self, *context: Any) -> Any:
        params = super().get_params(*context)
        for param in params:
            if isinstance(param, TyperArgument):
                vars(param)["display_type_rich"] = lambda ctx: None
        return params


def flag(name: str, help: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(name, help=help)


def option(help: str, metavar: str = "N", least: float | None = None, most: float | None = None,
           name: str | None = None, **more: Any) -> Any:  # fmt: skip
    """Declare an option with a value, named after its parameter unless it has a `name`."""
    names = () if name is None else (name,)
    return typer.Option(*names, metavar=metavar, help=help, min=least, max=most, **more)


def file_option(help: str, metavar: str = "FILE", name: str | None = None) -> Any:
    """Declare an option whose value is a file to write."""
    return option(help, metavar, name=name, dir_okay=False)


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
Json = Annotated[bool, flag("--json", "Print JSON.")]
Text = Annotated[bool, flag("--text", "An INPUT is a text, also if it names a file.")]
Device = Annotated[str, option("auto, cpu, cuda, cuda:1 or mps.", "DEVICE")]
# the ranges of these are checked by `regard.tasks.search`
Beam = Annotated[int | None, option("translate: beam size. [default: 5]")]
Penalty = Annotated[
    float | None,
    option("translate: length penalty, Wu et al. 2016, eq. 14. [default: 0.6]", "X"),
]
Mbr = Annotated[
    int | None,
    option("translate: of N samples, the one most like the others (minimum Bayes risk)."),
]
Count = Annotated[int | None, option("recommend: items per user.", least=1, most=1_000_000)]
Set = Annotated[
    list[str] | None,
    option("Change a setting of regard train --keys; repeatable.", "KEY=VALUE", name="--set"),
]


def check_language(language: str) -> None:
    """Refuse a --lang that pages are not written in, before any work."""
    from regard.visual.html import LANGUAGES

    if language not in LANGUAGES:
        raise typer.BadParameter(f"--lang should be {' or '.join(LANGUAGES)}, got {language}")
