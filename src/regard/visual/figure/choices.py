"""Rows of symbols and the one position of each that hard attention chose."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.patches import Rectangle

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

CELL = 0.42  # inches
RIGHT, WRONG = "#1b9e77", "#d95f02"


def choices(
    rows: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]],
    chosen: Sequence[int],
    wanted: Sequence[int],
    path: str | Path,
    *,
    title: str | None = None,
) -> Path:
    """Draw rows of symbols, shaded by how likely each was to be chosen.

    The chosen cell has a frame, green if it is the wanted one; otherwise the frame is orange
    and the wanted cell has a dashed one.

    Args:
        rows: symbols of each row, of different lengths
        weights: how likely each of them was, like `rows`
        chosen: a position in each row
        wanted: the position that would be right
        path: the file, .png or .svg
        title: a line above

    Returns: the path
    """
    if not len(rows) == len(weights) == len(chosen) == len(wanted) or not rows:
        raise ValueError(
            "rows, weights, chosen and wanted should be of one length, 1 or more, got "
            f"{len(rows)}, {len(weights)}, {len(chosen)} and {len(wanted)}"
        )
    longest = max(map(len, rows))
    drawn = figure(CELL * longest + 0.6, CELL * len(rows) + 0.8)
    axes = drawn.add_subplot()
    written = choose_fonts([symbol for row in rows for symbol in row] + [title or ""])
    labels = iter(written.labels)
    for y, row in enumerate(rows):
        for x in range(len(row)):
            shade = 1 - 0.55 * min(max(weights[y][x], 0.0), 1.0)
            face = (shade, shade, 1.0)
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="#cccccc"))
            axes.text(
                x + 0.5,
                y + 0.5,
                next(labels),
                ha="center",
                va="center",
                fontsize=10,
                family=written.families,
            )
        right = chosen[y] == wanted[y]
        _frame(axes, chosen[y], y, RIGHT if right else WRONG, "-")
        if not right:
            _frame(axes, wanted[y], y, RIGHT, "--")
    if title:
        axes.set_title(written.labels[-1], fontsize=11, family=written.families)
    axes.set_xlim(-0.1, longest + 0.1)
    axes.set_ylim(len(rows) + 0.1, -0.1)
    axes.set_aspect("equal")
    axes.axis("off")
    return save(drawn, path)


def _frame(axes, x: int, y: int, color: str, style: str) -> None:
    axes.add_patch(
        Rectangle(
            (x + 0.04, y + 0.04),
            0.92,
            0.92,
            fill=False,
            edgecolor=color,
            linewidth=2.4,
            linestyle=style,
            zorder=3,
        )
    )
