"""Heatmaps as SVG, without a drawing library."""

from collections.abc import Sequence
from html import escape

from torch import Tensor

from regard.visual.color import viridis
from regard.visual.display_width import display_width

CELL, LETTER = 17, 6.6  # of a map, in pixels


def heatmap(weights: Tensor, rows: Sequence[str], columns: Sequence[str], *, title: str) -> str:
    """An SVG element that draws weights in [0, 1], queries down and keys across.

    Args:
        weights: (M, N)
        rows, columns: M and N labels; they are text, never markup
        title: for screen readers
    """
    if weights.shape != (len(rows), len(columns)):
        raise ValueError(
            f"{len(rows)} row and {len(columns)} column labels do not fit a map of shape "
            f"{tuple(weights.shape)}"
        )
    left = LETTER * max(map(display_width, rows), default=0) + 8
    top = LETTER * max(map(display_width, columns), default=0) * 0.75 + 12
    width, height = left + CELL * len(columns) + top * 0.75, top + CELL * len(rows) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" role="img" font-family="monospace" font-size="11">'
        f"<title>{escape(title)}</title>"
    ]
    for j, label in enumerate(columns):
        x, y = left + CELL * (j + 0.6), top - 4
        parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-48 {x:.1f} {y:.1f})">'
            f"{escape(label)}</text>"
        )
    for i, label in enumerate(rows):
        y = top + CELL * (i + 0.7)
        parts.append(
            f'<text x="{left - 5:.1f}" y="{y:.1f}" text-anchor="end">{escape(label)}</text>'
        )
        for j, weight in enumerate(weights[i].tolist()):
            x, y = left + CELL * j, top + CELL * i
            tip = escape(f"{rows[i]} → {columns[j]}: {weight:.2f}")
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="{color(weight)}"><title>{tip}</title></rect>'
            )
    return "".join([*parts, "</svg>"])


def color(weight: float) -> str:
    """Viridis from 0 to 1 as #rrggbb.

    >>> color(0.0), color(1.0)
    ('#440154', '#fde725')
    """
    return "#{:02x}{:02x}{:02x}".format(*viridis(weight))
