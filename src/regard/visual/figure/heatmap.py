"""An attention map as in Bahdanau et al. 2015, figure 3."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from torch import Tensor

from regard.visual.display_width import display_width
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.matrix import labelled, pool_rows

Colors = Literal["viridis", "gray"]
CELL = 0.32  # inches
LARGEST = 512  # rows or columns that a figure shows; longer maps are max-pooled
MOST_LABELS = 64
LONGEST_LABEL = 24  # letters


def heatmap(
    weights: Tensor | Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | Path,
    *,
    title: str | None = None,
    colors: Colors = "viridis",
) -> Path:
    """Draw one attention map as PNG or SVG: a row per query, key labels on top.

    The scale runs from 0 to 1, or to the largest and from the lowest entry if these lie outside.
    A map above 512 rows or columns is max-pooled, so that a spike survives.

    Args:
        weights: the map, (M, N)
        queries: M labels
        keys: N labels
        path: the file, .png or .svg
        title: a line above the map
        colors: "viridis" or "gray" (white is 1, as in the paper)

    Returns: the path

    Raises:
        ValueError: a map that does not fit its labels, is empty or not finite, or another suffix
    """
    matrix = labelled(weights, queries, keys)
    if matrix.numel() == 0:
        raise ValueError(f"a map of shape {tuple(matrix.shape)} has nothing to draw")
    matrix, rows = pool_rows(matrix, list(queries), LARGEST)
    transposed, columns = pool_rows(matrix.T, list(keys), LARGEST)
    cell = CELL if max(matrix.shape) <= 40 else max(CELL * 40 / max(matrix.shape), 0.02)
    drawn = figure(max(cell * len(columns), 1.2) + 1.5, max(cell * len(rows), 0.8) + 1.2)
    draw_map(drawn.add_subplot(), transposed.T, rows, columns, colors=colors, title=title)
    return save(drawn, path)


def draw_map(
    axes: Axes,
    matrix: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    colors: str = "viridis",
    limits: tuple[float, float] | None = None,
    title: str | None = None,
    longest: int = LONGEST_LABEL,
) -> None:
    """Draw a matrix into axes, with its labels and a colour bar.

    Args:
        axes: where
        matrix: (M, N)
        rows, columns: M and N labels; many are thinned out, long ones are cut
        colors: a colour map of matplotlib
        limits: values of the first and the last colour; None takes 0 and 1 or what lies outside
        title: a line above
        longest: letters of a label, before it is cut
    """
    low, high = limits or (min(matrix.min().item(), 0.0), max(matrix.max().item(), 1.0))
    image = axes.imshow(
        matrix.numpy(), cmap=colors, vmin=low, vmax=high, aspect="equal", interpolation="nearest"
    )
    written = choose_fonts([*(_short(label, longest) for label in (*rows, *columns)), title or ""])
    labels = written.labels
    every = -(-max(len(rows), len(columns)) // MOST_LABELS)
    axes.xaxis.tick_top()
    across = labels[len(rows) : -1 : every]
    upright = max(map(display_width, across), default=0) > 2 * every  # too wide for its column
    axes.set_xticks(range(0, len(columns), every), across, rotation=90 if upright else 0)
    axes.set_yticks(range(0, len(rows), every), labels[: len(rows) : every])
    axes.tick_params(length=0, pad=3, labelsize=9)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_fontfamily(written.families)
        text.set_parse_math(False)
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(labels[-1], fontfamily=written.families, fontsize=10, parse_math=False)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.04, pad=0.03, shrink=0.7)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)


def _short(label: str, longest: int) -> str:
    return label if len(label) <= longest else label[: longest - 1] + "…"
