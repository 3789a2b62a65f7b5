"""A gallery of every mechanism on one small input."""

from collections.abc import Iterator
from pathlib import Path

from regard.system.files import atomic_file
from regard.visual.gallery import functions, layers
from regard.visual.gallery.exhibit import Exhibit
from regard.visual.gallery.page import listing, page, picture
from regard.visual.gallery.texts import GLOSSARIES, PAGE, ROOMS
from regard.visual.html import write_html

__all__ = ["ROOMS", "Exhibit", "check_folder", "exhibits", "page", "write"]


def exhibits() -> Iterator[Exhibit]:
    """All exhibits, room by room."""
    yield from functions.exhibits()
    yield from layers.exhibits()


def check_folder(folder: Path) -> None:
    """Refuse to overwrite a page or README that `regard gallery` did not write.

    Raises:
        FileExistsError: names the file
    """
    for name, mark in (("README.md", "# {}"), ("index.html", "<title>{}</title>")):
        file = folder / name
        if not file.exists():
            continue
        content = file.read_text(encoding="utf-8", errors="replace")
        if not any(mark.format(text.title) in content for text in PAGE.values()):
            raise FileExistsError(
                f"{file} exists and was not written by `regard gallery`; "
                "choose another directory with --out"
            )


def write(folder: Path, shown: list[Exhibit], language: str = "en") -> Path:
    """Write the gallery to a directory, which is created if missing; return the page's path.

    `index.html` is the page; `README.md` shows the same maps, as files in `maps`, without costs.
    Both link to the glossary if it is in the directory above, as in the documentation.

    Args:
        language: of all texts, "en" or "ko"
    """
    check_folder(folder)
    maps = folder / "maps"
    maps.mkdir(parents=True, exist_ok=True)
    texts = {maps / f"{exhibit.key}.svg": picture(exhibit, language) for exhibit in shown}
    glossaries = [link for link in GLOSSARIES if (folder / link).is_file()]
    texts[folder / "README.md"] = listing(shown, glossaries, language)
    for file, text in texts.items():
        with atomic_file(file) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
    return write_html(page(shown, glossaries, language), folder / "index.html")
