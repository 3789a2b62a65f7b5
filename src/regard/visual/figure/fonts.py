"""Which fonts can write a figure's labels, and what to do about letters that none of them has."""

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from regard.core.graphemes import graphemes
from regard.visual.display_width import printable

LATIN = "DejaVu Sans"  # comes with matplotlib; Latin, Greek, Cyrillic, Arabic, Hebrew, symbols
MISSING = "□"
# Sans fonts for each script that Latin lacks, as they are called on Linux, macOS and Windows.
KOREAN = ("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Apple SD Gothic Neo", "Malgun Gothic")
JAPANESE = ("Noto Sans CJK JP", "Noto Sans JP", "IPAexGothic", "Hiragino Sans", "Yu Gothic")
CHINESE = ("Noto Sans CJK SC", "Noto Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "SimHei")
EMOJI = ("Noto Emoji", "Symbola", "Segoe UI Emoji")  # outlines: matplotlib draws no colour fonts
EAST_ASIAN = ("HANGUL", "CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO")  # in Unicode's names


class Lettering(NamedTuple):
    """Labels that can be drawn, and the font families that draw them, in order of preference."""

    families: list[str]
    labels: list[str]


def lettering(labels: Iterable[str]) -> Lettering:
    """Choose fonts for labels; warn, with what to install, where no font has a letter.

    An emoji that no font has is written as its name, any other such letter as an empty box.
    Matplotlib itself puts right-to-left text in order and joins Arabic letters.

    >>> lettering(["chat", "one\\ttwo"])
    Lettering(families=['DejaVu Sans'], labels=['chat', 'one\\\\ttwo'])
    """
    clean = [_without_isolates(printable(_escaped(label))) for label in labels]
    wanted = {ord(char) for label in clean for char in label if _is_seen(char)}
    families, missing = _families(wanted)
    if missing:
        warnings.warn(_hint(missing), stacklevel=4)
        clean = [_spelled(label, missing) for label in clean]
    return Lettering(families, clean)


def _families(wanted: set[int]) -> tuple[list[str], set[int]]:
    """Families that together have what is wanted, and what none of them has."""
    known = {
        entry.name: (entry.fname, entry.index)
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and entry.weight == 400 and not _is_for_formulas(entry.name)
    }
    families, missing = [LATIN], wanted - _letters(*known[LATIN])
    for family in (*_preferred(wanted), *sorted(known)):
        if not missing:
            break
        if family in known and missing & _letters(*known[family]):
            families.append(family)
            missing -= _letters(*known[family])
    return families, missing


def _preferred(wanted: set[int]) -> Sequence[str]:
    """A Han character looks different in each country: let kana or hangul beside it decide."""
    if any(0x3040 <= code <= 0x30FF for code in wanted):
        return (*JAPANESE, *KOREAN, *CHINESE, *EMOJI)
    if any(0xAC00 <= code <= 0xD7A3 for code in wanted):
        return (*KOREAN, *CHINESE, *JAPANESE, *EMOJI)
    return (*CHINESE, *JAPANESE, *KOREAN, *EMOJI)


@lru_cache(maxsize=256)
def _letters(path: str, index: int) -> frozenset[int]:
    """The characters of a font; none of a colour font, whose pictures matplotlib cannot draw."""
    font = FT2Font(path, face_index=index)
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
    return (
        f"no font here has {shown}; install one (on Debian: apt install {packages}) and draw again"
    )


def _package(char: str) -> str:
    """The Debian package with a font for a character."""
    if unicodedata.category(char) == "So":
        return "fonts-symbola"
    is_asian = unicodedata.name(char, "").startswith(EAST_ASIAN)
    return "fonts-noto-cjk" if is_asian else "fonts-noto-core"
