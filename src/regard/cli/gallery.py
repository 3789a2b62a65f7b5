"""`regard gallery`: every mechanism on one page."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import check_language, option
from regard.cli.output import check_output


def gallery(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Directory to write to.", file_okay=False)
    ] = Path("gallery"),
    language: Annotated[str, option("Language of the page.", "en|ko", name="--lang")] = "en",
) -> None:
    """Draw every mechanism on one page, with formula and cost.

    The page is one file that needs no network. Files in the directory that were not written by
    this command are never overwritten.
    """
    from regard.visual.gallery import ROOMS, check_folder, exhibits, write

    check_language(language)
    check_output(out)
    check_folder(out)
    shown = []
    for exhibit in exhibits():
        name = f"{ROOMS[exhibit.room][language]}: {exhibit.text(language).name}"
        print(name, file=sys.stderr, flush=True)
        shown.append(exhibit)
    print(write(out, shown, language))
