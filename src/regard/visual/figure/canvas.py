"""A matplotlib figure without pyplot: nothing global is opened, nothing needs a screen."""

from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
RESOLUTION = 160  # dots per inch of a PNG


def figure(width: float, height: float) -> Figure:
    """An empty white figure of a size in inches."""
    empty = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(empty)
    return empty


def save(drawn: Figure, path: str | Path) -> Path:
    """Write a figure as PNG or SVG, by the path's suffix; folders are made.

    Text in an SVG becomes outlines, so that it looks the same where the font is missing.

    Raises:
        ValueError: another suffix
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(
            f"a figure is written as .png or .svg, got {path.name!r}; for a page use .html"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    # same figure, same file
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "regard"}):
        is_svg = path.suffix.lower() == ".svg"
        metadata = {"Date": None} if is_svg else {}
        drawn.savefig(path, dpi=RESOLUTION, bbox_inches="tight", pad_inches=0.12, metadata=metadata)
    return path
