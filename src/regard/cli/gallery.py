"""`regard gallery`: every mechanism on one page."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def gallery(
    out: Annotated[
        Path, typer.Option("--out", help="The folder to write to.", file_okay=False)
    ] = Path("gallery"),
) -> None:
    """Draw every mechanism on one small input, with formula and measured cost, on one page.

    The page is one file, needs no network and opens from disk.
    """
    from regard.visual.gallery import check_folder, exhibits, write

    check_folder(out)
    shown = []
    for exhibit in exhibits():
        print(f"{exhibit.room}: {exhibit.name}", file=sys.stderr, flush=True)
        shown.append(exhibit)
    print(write(out, shown))
