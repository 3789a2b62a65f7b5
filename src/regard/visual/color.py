"""Viridis for terminals, in 24 bits or in the 256 colours of xterm."""

import os
import sys
from typing import Literal

Palette = Literal["true", "256", "plain"]
RGB = tuple[int, int, int]

# matplotlib's viridis at 0, 1/16 ... 1; linear interpolation is within 6/255 of it.
_VIRIDIS = bytes.fromhex(
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c"
    "1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725"
)
_STEPS = len(_VIRIDIS) // 3 - 1
_CUBE = (0, 95, 135, 175, 215, 255)  # the levels of xterm's 6×6×6 colour cube


def viridis(share: float) -> RGB:
    """The colour of a value between 0 (dark violet) and 1 (yellow).

    >>> viridis(0), viridis(1)
    ((68, 1, 84), (253, 231, 37))
    """
    place = min(max(share, 0.0), 1.0) * _STEPS
    below = min(int(place), _STEPS - 1)
    low, high = _VIRIDIS[3 * below : 3 * below + 3], _VIRIDIS[3 * below + 3 : 3 * below + 6]
    red, green, blue = (
        round(start + (place - below) * (end - start)) for start, end in zip(low, high, strict=True)
    )
    return red, green, blue


def on_color(text: str, share: float, palette: Palette) -> str:
    """A text on the colour of a value, in black or white, whichever has more contrast.

    >>> on_color("x", 1.0, "256")
    '\\x1b[38;5;16;48;5;220mx\\x1b[0m'
    """
    if palette == "plain":
        return text
    background = viridis(share)
    # Rec. 709 luma: perceived brightness
    luma = 0.2126 * background[0] + 0.7152 * background[1] + 0.0722 * background[2]
    ink = (0, 0, 0) if luma > 120 else (255, 255, 255)
    return f"\x1b[38;{_code(ink, palette)};48;{_code(background, palette)}m{text}\x1b[0m"


def terminal_palette() -> Palette:
    """The colours of standard output, by NO_COLOR, FORCE_COLOR, COLORTERM and TERM."""
    forced = bool(os.environ.get("FORCE_COLOR"))
    terminal = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR"):
        return "plain"
    if not forced and (not sys.stdout.isatty() or terminal == "dumb"):
        return "plain"
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return "true"
    return "256" if forced or "256" in terminal else "plain"


def _code(color: RGB, palette: Palette) -> str:
    if palette == "true":
        return "2;{};{};{}".format(*color)
    red, green, blue = (min(range(6), key=lambda level: abs(_CUBE[level] - part)) for part in color)
    return f"5;{16 + 36 * red + 6 * green + blue}"
