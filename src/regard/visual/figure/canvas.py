"""Matplotlib figures without pyplot: no global state, and a notebook shows one once."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.system.files import atomic_file
from regard.visual.figure.fonts import report_missing

FORMATS = (".png", ".svg")
RESOLUTION = 160  # dots per inch of a PNG
TIGHT: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.12}


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last line of a cell, whatever backend it has."""

    def _repr_png_(self) -> bytes:
        drawn = BytesIO()
        self.savefig(drawn, format="png", dpi=RESOLUTION / 2, **TIGHT)
        return drawn.getvalue()


def figure(width: float, height: float) -> Figure:
    """An empty white figure of a size in inches."""
    empty = NotebookFigure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(empty)
    return empty


def save(drawn: Figure, path: str | Path | None) -> Figure:
    """Write a figure as PNG or SVG, by the path's suffix; missing directories are created.

    Text in an SVG becomes outlines, so that it looks the same where the font is missing.

    Args:
        path: None writes nothing

    Returns: the figure

    Raises:
        ValueError: another suffix
    """
    if path is None:
        report_missing()
        return drawn
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(
            f"expected a file name that ends in .png or .svg, got {path.name!r}; a page is .html"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    # no date and no random names: the same figure is the same file
    reproducible = matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "regard"})
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
    with reproducible, atomic_file(path) as part:
        drawn.savefig(part, dpi=RESOLUTION, metadata=metadata, **TIGHT)
    report_missing()
    return drawn
