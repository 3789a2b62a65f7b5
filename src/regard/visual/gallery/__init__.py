"""Every mechanism on one small input, on one page that needs no network."""

from collections.abc import Iterator
from pathlib import Path

from regard.visual.gallery import functions, modules
from regard.visual.gallery.exhibit import Exhibit
from regard.visual.gallery.listing import listing
from regard.visual.gallery.page import page, picture

__all__ = ["Exhibit", "exhibits", "page", "write"]


def exhibits() -> Iterator[Exhibit]:
    """All exhibits, room by room."""
    yield from functions.exhibits()
    yield from modules.exhibits()


def write(folder: Path, shown: list[Exhibit]) -> Path:
    """Write the gallery to a folder, which is made if it is not there; returns the page's path.

    `index.html` is the page; `README.md` shows the same maps, as files in `maps`, without costs.
    """
    maps = folder / "maps"
    maps.mkdir(parents=True, exist_ok=True)
    for exhibit in shown:
        (maps / f"{exhibit.file_name}.svg").write_text(picture(exhibit), encoding="utf-8")
    (folder / "README.md").write_text(listing(shown), encoding="utf-8")
    file = folder / "index.html"
    file.write_text(page(shown), encoding="utf-8")
    return file
