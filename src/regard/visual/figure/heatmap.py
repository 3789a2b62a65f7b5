"""One attention map, as in Bahdanau et al. 2015, figure 3, or two and their difference."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from regard.visual.display_width import display_width, token_text
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.matrix import labelled, pool_rows

Colors = Literal["viridis", "gray"]
CELL = 0.32  # inches
LARGEST = 512  # rows or columns that a figure shows; longer maps are max-pooled
MOST_LABELS = 64
LONGEST_LABEL = 24  # letters
LETTER = 0.0085  # inches of a column of text, per point of its size


def heatmap(
    weights: Tensor | Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | Path | None = None,
    *,
    title: str | None = None,
    colors: Colors = "viridis",
    names: tuple[str, str] = ("query", "key"),
) -> Figure:
    """Draw one attention map as PNG or SVG: a row per query, key labels on top.

    The scale runs from 0 to 1, or to the largest and from the lowest entry if these lie outside.
    A map above 512 rows or columns is max-pooled, so that a spike survives.

    Args:
        weights: the map, (M, N)
        queries: M labels
        keys: N labels
        path: a file to write, .png or .svg
        title: a line above the map
        colors: "viridis" or "gray" (white is 1, as in the paper)
        names: of the axes

    Returns: the figure

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
    axes = drawn.add_subplot()
    draw_map(axes, transposed.T, rows, columns, colors=colors, title=title, names=names)
    return save(drawn, path)


def comparison(
    left: Tensor | Sequence[Sequence[float]],
    right: Tensor | Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | Path | None = None,
    *,
    names: tuple[str, str] = ("left", "right"),
    colors: Colors = "viridis",
) -> Figure:
    """Draw two maps and their difference, right − left, as PNG or SVG.

    In the difference blue is more weight in the left map, red more in the right one.

    Args:
        left, right: maps (M, N)
        queries: M labels
        keys: N labels
        path: a file to write, .png or .svg
        names: of the maps
        colors: of the maps, "viridis" or "gray"

    Returns: the figure

    Raises:
        ValueError: maps of different shapes, empty, or that do not fit their labels
    """
    maps = [labelled(each, queries, keys, what="a comparison") for each in (left, right)]
    if maps[0].numel() == 0:
        raise ValueError(f"a map of shape {tuple(maps[0].shape)} has nothing to draw")
    if max(maps[0].shape) > LARGEST:
        raise ValueError(
            f"a comparison draws maps of up to {LARGEST} words, got {tuple(maps[0].shape)}; pool "
            "them first"
        )
    difference = maps[1] - maps[0]
    largest = max(difference.abs().max().item(), 1e-3)
    size = CELL if max(difference.shape) <= 30 else CELL * 30 / max(difference.shape)
    wide, high = max(size * len(keys), 1.2) + 1.7, max(size * len(queries), 0.8) + 1.3
    drawn = figure(3 * wide, high)
    panels = drawn.subplots(1, 3)
    rows, columns = list(queries), list(keys)
    blank = [""] * len(rows)  # the first map has the labels of all three
    for axes, matrix, name, labels in zip(panels, maps, names, (rows, blank), strict=False):
        draw_map(axes, matrix, labels, columns, colors=colors, title=name)
    title, limits = f"{names[1]} − {names[0]}", (-largest, largest)
    draw_map(panels[2], difference, blank, columns, colors="RdBu_r", limits=limits, title=title)
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
    names: tuple[str, str] = ("", ""),
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
        names: of the axes, of rows and columns
    """
    low, high = limits or (min(matrix.min().item(), 0.0), max(matrix.max().item(), 1.0))
    image = axes.imshow(
        matrix.numpy(), cmap=colors, vmin=low, vmax=high, aspect="equal", interpolation="nearest"
    )
    label_ticks(axes, [_short(row, longest) for row in rows], [_short(c, longest) for c in columns])
    axes.spines[:].set_visible(False)
    for text, write in ((names[0], axes.set_ylabel), (names[1], axes.set_xlabel)):
        if text:
            write(text, fontsize=8, color="#555d66")
    axes.xaxis.set_label_position("top")
    if title:
        families, (label,) = choose_fonts([title])
        axes.set_title(label, fontfamily=families, fontsize=10, parse_math=False)
    color_bar(image, axes)


def label_ticks(
    axes: Axes, rows: Sequence[str], columns: Sequence[str], *, size: float = 9
) -> None:
    """Label rows and columns (on top) of a map; many labels are thinned out evenly."""
    families, labels = choose_fonts(map(token_text, (*rows, *columns)))
    every = max(1, -(-max(len(rows), len(columns)) // MOST_LABELS))
    across = labels[len(rows) :: every]
    widest = max(map(display_width, across), default=0) * LETTER * size
    is_upright = widest > every * _cell_width(axes)
    style: dict[str, Any] = {"fontfamily": families, "fontsize": size, "parse_math": False}
    axes.xaxis.tick_top()
    axes.set_xticks(range(0, len(columns), every), across, rotation=90 * is_upright, **style)
    axes.set_yticks(range(0, len(rows), every), labels[: len(rows) : every], **style)
    axes.tick_params(length=0, pad=3 if size > 6 else 1)


def _cell_width(axes: Axes) -> float:
    """Inches of a column, which is square where the aspect is equal."""
    low, high = axes.get_xlim()
    bottom, top = axes.get_ylim()
    extent, dpi = axes.get_window_extent(), axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    width, height = extent.width / abs(high - low) / dpi, extent.height / abs(top - bottom) / dpi
    return min(width, height) if axes.get_aspect() == 1.0 else width


def color_bar(image: AxesImage, axes: Axes | list[Axes], name: str = "") -> None:
    """Draw the scale of an image beside axes, without a frame."""
    figure = image.get_figure()
    assert figure is not None
    options: dict[str, Any] = {"fraction": 0.04, "pad": 0.03, "shrink": 0.7}
    if isinstance(axes, list):
        options = {"fraction": 0.02, "pad": 0.02, "aspect": 30}
    bar = figure.colorbar(image, ax=axes, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
    if name:
        bar.set_label(name, fontsize=8)


def _short(label: str, longest: int) -> str:
    return label if len(label) <= longest else label[: longest - 1] + "…"
