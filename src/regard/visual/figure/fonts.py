"""Choose fonts that can draw a figure's labels, and report characters that no font has."""

import logging
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from regard.system.graphemes import graphemes
from regard.visual.display_width import printable

LATIN = "DejaVu Sans"  # comes with matplotlib; Latin, Greek, Cyrillic, Arabic, Hebrew, symbols
MISSING = "□"
# Sans fonts for each script that Latin lacks, as they are called on Linux, macOS and Windows; the
# last of Korean and Japanese come from packages on PyPI, with fewer characters than the others.
KOREAN = ("Noto Sans CJK KR", "Noto Sans KR", "Apple SD Gothic Neo", "Malgun Gothic", "NanumGothic")
JAPANESE = ("Noto Sans CJK JP", "Noto Sans JP", "Hiragino Sans", "Yu Gothic", "IPAexGothic")
PACKAGED = {"koreanize_matplotlib": "NanumGothic.ttf", "matplotlib_fontja": "ipaexg.ttf"}
CHINESE = ("Noto Sans CJK SC", "Noto Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "SimHei")
EMOJI = ("Noto Emoji", "Symbola", "Segoe UI Emoji")  # outlines: matplotlib draws no colour fonts
EAST_ASIAN = ("HANGUL", "CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO")  # in Unicode's names


# Packaged fonts have no bold: matplotlib takes the regular weight, which needs no warning.
logging.getLogger("matplotlib.font_manager").addFilter(lambda log: "font weight" not in log.msg)

_reported: set[int] = set()
_unreported: set[int] = set()


class FontChoice(NamedTuple):
    """Labels that can be drawn, and the font families that draw them, in order of preference."""

    families: list[str]
    labels: list[str]


def choose_fonts(labels: Iterable[str]) -> FontChoice:
    """Choose font families for labels, and replace the characters that no font has.

    An emoji that no font has is replaced by its name, any other character by an empty box; both
    are reported by `report_missing`. Matplotlib reorders right-to-left text and joins Arabic
    letters.

    >>> choose_fonts(["chat", "one\\ttwo"])
    FontChoice(families=['DejaVu Sans'], labels=['chat', 'one\\\\ttwo'])
    """
    clean = [_without_isolates(printable(_escaped(label))) for label in labels]
    wanted = {ord(char) for label in clean for char in label if _is_seen(char)}
    families, missing = _families(wanted)
    if missing:
        _unreported.update(missing - _reported)
        clean = [_spelled(label, missing) for label in clean]
    return FontChoice(families, clean)


def report_missing() -> None:
    """Print one sentence on standard error about missing characters, once for each character."""
    if _unreported:
        print(_hint(_unreported), file=sys.stderr)
        _reported.update(_unreported)
        _unreported.clear()


def _families(wanted: set[int]) -> tuple[list[str], set[int]]:
    """Families that together have the wanted characters, and the characters that all lack."""
    fonts = _known_fonts()
    families, missing = [LATIN], wanted - _characters(*fonts[LATIN])
    if missing:
        _update_fonts()
        fonts = _known_fonts()
    for family in (*_preferred(wanted), *sorted(fonts)):
        if not missing:
            break
        if family in fonts and missing & _characters(*fonts[family]):
            families.append(family)
            missing -= _characters(*fonts[family])
    return families, missing


def _known_fonts() -> dict[str, tuple[str, int]]:
    """By family, the file and the index in it of the upright regular font."""
    return {
        entry.name: (entry.fname, entry.index)
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and entry.weight == 400 and not _is_for_formulas(entry.name)
    }


def _update_fonts() -> None:
    """Add fonts of PyPI packages and fonts newer than matplotlib's cache; drop removed ones."""
    fonts = font_manager.fontManager.ttflist
    fonts[:] = [entry for entry in fonts if Path(entry.fname).is_file()]
    known = {entry.fname for entry in fonts}
    files = [*_packaged_fonts(), *font_manager.findSystemFonts()]
    for file in dict.fromkeys(files):
        if file not in known:
            try:
                font_manager.fontManager.addfont(file)
            except (OSError, RuntimeError, ValueError):  # damaged, or of an unsupported format
                continue


@lru_cache
def _packaged_fonts() -> list[str]:
    """Font files in packages that are found but not imported: importing changes matplotlib."""
    files = []
    for package, name in PACKAGED.items():
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            files.append(str(Path(spec.origin).parent / "fonts" / name))
    return [file for file in files if Path(file).is_file()]


def _preferred(wanted: set[int]) -> Sequence[str]:
    """Families by language: Han characters are drawn as the kana or hangul beside them require."""
    if any(0x3040 <= code <= 0x30FF for code in wanted):
        return (*JAPANESE, *KOREAN, *CHINESE, *EMOJI)
    if any(0xAC00 <= code <= 0xD7A3 for code in wanted):
        return (*KOREAN, *CHINESE, *JAPANESE, *EMOJI)
    return (*CHINESE, *JAPANESE, *KOREAN, *EMOJI)


@lru_cache(maxsize=256)
def _characters(path: str, index: int) -> frozenset[int]:
    """The characters of a font; none of a colour font, whose pictures matplotlib cannot draw."""
    try:
        font = FT2Font(path, face_index=index)
    except (OSError, RuntimeError):  # removed since matplotlib built its cache
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()


def _is_for_formulas(family: str) -> bool:
    return family.startswith(("Last Resort", "cm", "STIXNonUni", "STIXSize"))


def _is_seen(char: str) -> bool:
    return unicodedata.category(char) not in ("Cf", "Zs") and not "\ufe00" <= char <= "\ufe0f"


def _escaped(label: str) -> str:
    return "".join(
        repr(char)[1:-1] if unicodedata.category(char) == "Cc" else char for char in label
    )


def _without_isolates(label: str) -> str:
    return label.replace("\u2068", "").replace("\u2069", "")


def _spelled(label: str, missing: set[int]) -> str:
    parts = []
    for cluster in graphemes(label):
        if not any(ord(char) in missing for char in cluster):
            parts.append(cluster)
        elif unicodedata.category(cluster[0]) == "So":
            names = [unicodedata.name(c, "symbol").lower() for c in cluster if _is_seen(c)]
            parts.append(f"[{', '.join(names)}]")
        else:
            parts.append("".join(MISSING if ord(char) in missing else char for char in cluster))
    return "".join(parts)


def _hint(missing: set[int]) -> str:
    chars = [chr(code) for code in sorted(missing)]
    shown = " ".join(chars[:8]) + (" …" if len(chars) > 8 else "")
    packages = " ".join(sorted({_package(char) for char in chars}))
    remedy = f"install one (Debian: apt install {packages}) and draw again"
    return f"No installed font has {shown}: {remedy}."


def _package(char: str) -> str:
    """The Debian package with a font for a character."""
    if unicodedata.category(char) == "So":
        return "fonts-symbola"
    is_asian = unicodedata.name(char, "").startswith(EAST_ASIAN)
    return "fonts-noto-cjk" if is_asian else "fonts-noto-core"
