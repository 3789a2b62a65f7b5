"""What a machine with a memory heard and said over time, and where its heads were."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator
from torch import Tensor

from regard.visual.figure.canvas import figure, save

STEP = 0.14  # inches of a step of time


class Band(NamedTuple):
    """One picture among those below each other: time goes to the right."""

    name: str
    values: Tensor  # (T, height)
    colors: str = "gray_r"


def tape(bands: Sequence[Band], path: str | Path, *, title: str | None = None) -> Path:
    """Draw bands below each other, all with the same steps of time.

    Args:
        bands: what to draw, of one T; values from 0 to 1
        path: the file, .png or .svg
        title: a line above

    Returns: the path
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
