"""Attention as links between two rows of words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Curve
from torch import Tensor

from regard.visual.display_width import display_width, token_text
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.matrix import labelled

HEIGHT = 1.6  # inches between the rows
LETTER = 0.115  # inches
LONGEST = 200  # words
QUERY, KEY = "#0a58b8", "#b35900"  # blue and orange, safe for colour-blind readers


def strip(
    weights: Tensor | Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | Path | None = None,
    *,
    share: float = 0.7,
    title: str | None = None,
) -> Figure:
    """Draw queries above, keys below, and the links between them, as PNG or SVG.

    The largest weights of each query are drawn, up to a share of its row.

    Args:
        weights: the map, (M, N), of at most 200 × 200
        queries: M words
        keys: N words
        path: a file to write, .png or .svg
        share: of each row's weight, above 0 and up to 1
        title: a line above

    Returns: the figure

    Raises:
        ValueError: a map that does not fit its labels, is empty, too long, negative or not finite,
            or a share outside (0, 1]
    """
    matrix = labelled(weights, queries, keys, what="a strip")
    if not 0 < share <= 1:
        raise ValueError(f"share should be above 0 and at most 1, got {share}")
    if matrix.numel() == 0 or max(matrix.shape) > LONGEST:
        raise ValueError(
            f"a strip has from 1 to {LONGEST} words per row, got a map of {tuple(matrix.shape)}"
        )
    if matrix.min() < 0:
        raise ValueError("expected weights, got negative numbers: these look like scores")
    written = choose_fonts([*map(token_text, (*queries, *keys)), title or ""])
    above, below = written.labels[: len(queries)], written.labels[len(queries) : -1]
    top, bottom = _places(above), _places(below)
    width = max(top[-1] + _width(above[-1]) / 2, bottom[-1] + _width(below[-1]) / 2)
    top = [place + (width - top[-1] - _width(above[-1]) / 2) / 2 for place in top]
    bottom = [place + (width - bottom[-1] - _width(below[-1]) / 2) / 2 for place in bottom]

    drawn = figure(width + 0.3, HEIGHT + 0.9)
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.15, width + 0.15)
    axes.set_ylim(-0.45, HEIGHT + 0.45)
    axes.axis("off")
    for query, key, weight in covering(matrix, share):
        start, end = top[query], bottom[key]
        bend = [(start, HEIGHT), (start, HEIGHT * 0.55), (end, HEIGHT * 0.45), (end, 0)]
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
        line = PathPatch(
            Curve(bend, codes),
            fill=False,
            edgecolor=QUERY,
            linewidth=0.4 + 3.2 * weight,
            alpha=min(1.0, 0.12 + 0.85 * weight),
            capstyle="round",
        )
        axes.add_patch(line)
    text: dict[str, Any] = {
        "fontfamily": written.families,
        "fontsize": 11,
        "ha": "center",
        "parse_math": False,
    }
    for label, place in zip(above, top, strict=True):
        axes.text(place, HEIGHT + 0.06, label, va="bottom", color=QUERY, **text)
    for label, place in zip(below, bottom, strict=True):
        axes.text(place, -0.06, label, va="top", color=KEY, **text)
    if title:
        axes.text(width / 2, HEIGHT + 0.42, written.labels[-1], va="bottom", **text)
    return save(drawn, path)


def covering(matrix: Tensor, share: float) -> list[tuple[int, int, float]]:
    """The largest weights of each row that cover a share of it: (query, key, weight), ascending.

    >>> import torch
    >>> covering(torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 0.0]]), 0.7)
    [(0, 1, 0.25), (0, 0, 0.5)]
    """
    links = []
    for query, row in enumerate(matrix):
        covered, total = 0.0, float(row.sum())
        for key in row.argsort(descending=True, stable=True).tolist():
            weight = float(row[key])
            if weight <= 0 or covered >= share * total - 1e-9:
                break
            links.append((query, key, weight))
            covered += weight
    return sorted(links, key=lambda link: link[2])


def _places(labels: Sequence[str]) -> list[float]:
    """The middle of each word of a row that begins at 0."""
    places, end = [], 0.0
    for label in labels:
        width = _width(label)
        places.append(end + width / 2)
        end += width
    return places


def _width(label: str) -> float:
    return LETTER * (max(display_width(label), 2) + 1.5)
