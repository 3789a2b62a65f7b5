"""Every mechanism on one small input, on one page that needs no network."""

from collections.abc import Iterator
from pathlib import Path

from regard.visual.gallery import functions, modules
from regard.visual.gallery.exhibit import Exhibit
from regard.visual.gallery.listing import HEADING, listing
from regard.visual.gallery.page import TITLE, page, picture

__all__ = ["Exhibit", "check_folder", "exhibits", "page", "write"]


def exhibits() -> Iterator[Exhibit]:
    """All exhibits, room by room."""
    yield from functions.exhibits()
    yield from modules.exhibits()


def check_folder(folder: Path) -> None:
    """Refuse a folder whose page or README would be lost: one that no gallery has written.

    Raises:
        FileExistsError: with the file that is in the way
    """
    for name, mark in (("README.md", HEADING), ("index.html", TITLE)):
        file = folder / name
        if file.exists() and mark not in file.read_text(encoding="utf-8", errors="replace"):
            raise FileExistsError(
                f"{file} is there already and is no gallery's; choose another folder by --out"
            )


def write(folder: Path, shown: list[Exhibit]) -> Path:
    """Write the gallery to a folder, which is made if it is not there; returns the page's path.

    `index.html` is the page; `README.md` shows the same maps, as files in `maps`, without costs.
    """
    check_folder(folder)
    maps = folder / "maps"
    maps.mkdir(parents=True, exist_ok=True)
    for exhibit in shown:
        (maps / f"{exhibit.file_name}.svg").write_text(picture(exhibit), encoding="utf-8")
    (folder / "README.md").write_text(listing(shown), encoding="utf-8")
    file = folder / "index.html"
    file.write_text(page(shown), encoding="utf-8")
    return file
