"""`regard gallery`: every mechanism on one page."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.output import check_output


def gallery(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Directory to write to.", file_okay=False)
    ] = Path("gallery"),
) -> None:
    """Draw every mechanism on one page, with formula and cost.

    The page is one file that needs no network. Files in the directory that were not written by
    this command are never overwritten.
    """
    from regard.visual.gallery import check_folder, exhibits, write

    check_output(out)
    check_folder(out)
    shown = []
    for exhibit in exhibits():
        print(f"{exhibit.room}: {exhibit.name}", file=sys.stderr, flush=True)
        shown.append(exhibit)
    print(write(out, shown))
