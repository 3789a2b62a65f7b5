"""Figures of single tasks: attended images, hard choices, reasons of recommendations, memories."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.figure.heatmap import draw_map

SIDE, LINE = 1.35, 0.18  # inches of an image, and of a line above it
CHOICE, REASON, STEP = 0.42, 0.3, 0.14  # inches of a symbol, of a reason, of a time step
RIGHT, WRONG = "#1b9e77", "#d95f02"
LONGEST = 44  # letters of a title: parts of a series differ at the end


def attended_images(
    images: Tensor,
    weights: Tensor,
    titles: Sequence[str],
    path: str | Path | None = None,
    *,
    columns: int = 6,
    title: str | None = None,
) -> Figure:
    """Draw images, and below each the same image overlaid with the weights of its patches.

    Args:
        images: (B, height, width), values from 0 to 1
        weights: (B, rows, columns) of patches; each image has its own scale
        titles: above each image, of one line or several
        path: a file to write, .png or .svg
        columns: images per row
        title: above all images

    Returns: the figure
    """
    if not len(images) == len(weights) == len(titles) or not len(images):
        raise ValueError(
            "images, weights and titles should be of one length, 1 or more, got "
            f"{len(images)}, {len(weights)} and {len(titles)}"
        )
    written = choose_fonts([*(line for text in titles for line in text.split("\n")), title or ""])
    lines = iter(written.labels)
    wide, high = min(columns, len(images)), -(-len(images) // columns)
    band = LINE * max(text.count("\n") + 1 for text in titles)
    drawn = figure(SIDE * wide, (2 * SIDE + band) * high)
    grid = drawn.subplots(
        3 * high,
        wide,
        squeeze=False,
        height_ratios=[band, SIDE, SIDE] * high,
        gridspec_kw={"left": 0, "right": 1, "bottom": 0, "top": 1, "wspace": 0.05, "hspace": 0.05},
    )
    for axes in grid.flat:
        axes.axis("off")
    for number, (image, weight) in enumerate(zip(images, weights, strict=True)):
        row, column = divmod(number, columns)
        above, plain, shaded = grid[3 * row : 3 * row + 3, column]
        plain.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=1)
        text = "\n".join(next(lines) for _ in titles[number].split("\n"))
        above.text(0.5, 0, text, ha="center", va="bottom", fontsize=8, family=written.families)
        height, width = image.shape
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        shaded.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=1)
        shaded.imshow(weight.numpy(), cmap="inferno", alpha=0.72, extent=extent, vmin=0)
    if title:
        drawn.suptitle(
            written.labels[-1], y=1.02, va="bottom", fontsize=11, family=written.families
        )
    return save(drawn, path)


def choices(
    rows: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]],
    chosen: Sequence[int],
    wanted: Sequence[int],
    path: str | Path | None = None,
    *,
    title: str | None = None,
) -> Figure:
    """Draw rows of symbols, shaded by the probability of each.

    The chosen symbol has a frame, green if it is the right one; otherwise the frame is orange,
    and the right one has a dashed frame.

    Args:
        rows: symbols of each row, of different lengths
        weights: the probability of each symbol, like `rows`
        chosen: position in each row
        wanted: the right position in each row
        path: a file to write, .png or .svg
        title: a line above

    Returns: the figure
    """
    if not len(rows) == len(weights) == len(chosen) == len(wanted) or not rows:
        raise ValueError(
            "rows, weights, chosen and wanted should be of one length, 1 or more, got "
            f"{len(rows)}, {len(weights)}, {len(chosen)} and {len(wanted)}"
        )
    longest = max(map(len, rows))
    drawn = figure(CHOICE * longest + 0.6, CHOICE * len(rows) + 0.8)
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


def draw_reasons(
    reasons: Sequence[str],
    items: Sequence[str],
    gives: Sequence[Sequence[float]],
    features: Mapping[str, float],
    path: str | Path | None = None,
) -> Figure:
    """Draw what each reason adds to the score of each item, and which features matter.

    Args:
        reasons: R names; a past item has its attention weight in front
        items: C names
        gives: (R, C)
        features: features of items, the most important first, and their weights; 1 is average
        path: a file to write, .png or .svg
    """
    matrix = torch.tensor(gives, dtype=torch.float64)
    most = float(matrix.abs().max()) or 1.0
    heights = [REASON * len(reasons) + 2.0]
    heights += [REASON * len(features) + 0.9] if features else []
    drawn = figure(REASON * len(items) + 3.2, sum(heights))
    above, *below = drawn.subplots(len(heights), squeeze=False, height_ratios=heights).flat
    draw_map(
        above,
        matrix,
        reasons,
        items,
        colors="RdBu_r",
        limits=(-most, most),
        title="what each reason adds to the score",
        longest=LONGEST,
    )
    for axes in below:  # one, or none
        written = choose_fonts([*features])
        places = range(len(features))
        axes.barh(places, features.values(), color=RIGHT)
        axes.set_yticks(places, written.labels, fontfamily=written.families, fontsize="small")
        axes.invert_yaxis()
        axes.axvline(1, color="gray", linewidth=1)
        axes.set_title("weight of items with each feature (1 is average)", fontsize="medium")
    return save(drawn, path)


class Band(NamedTuple):
    """One panel of a tape; time runs to the right."""

    name: str
    values: Tensor  # (T, height)
    colors: str = "gray_r"


def tape(
    bands: Sequence[Band], path: str | Path | None = None, *, title: str | None = None
) -> Figure:
    """Draw bands below each other, on one time axis.

    Args:
        bands: all of the same T; values from 0 to 1
        path: a file to write, .png or .svg
        title: a line above

    Returns: the figure
    """
    steps = {len(band.values) for band in bands}
    if len(steps) != 1 or steps == {0}:
        raise ValueError(f"bands should all have the same steps, 1 or more, got {sorted(steps)}")
    heights = [max(3.0, float(band.values.shape[1])) for band in bands]
    width = max(4.0, STEP * steps.pop())
    drawn = figure(width + 1.2, STEP * sum(heights) + 0.35 * len(bands) + 0.5)
    grid = drawn.subplots(
        len(bands),
        1,
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": heights, "hspace": 0.12},
    )
    for axes, band in zip(grid[:, 0], bands, strict=True):
        axes.imshow(
            band.values.T.numpy(),
            cmap=band.colors,
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_ylabel(band.name, rotation=0, ha="right", va="center", fontsize=9)
        axes.set_yticks([])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    grid[-1, 0].set_xlabel("time", fontsize=9)
    if title:
        grid[0, 0].set_title(title, fontsize=11)
    return save(drawn, path)
