"""Images with what was looked at on them."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

SIDE, LINE = 1.35, 0.18  # inches of an image, and of a line above it


def attended_images(
    images: Tensor,
    weights: Tensor,
    titles: Sequence[str],
    path: str | Path,
    *,
    columns: int = 6,
    title: str | None = None,
) -> Path:
    """Draw images, and below each the same image with the weights of its patches laid over it.

    Args:
        images: (B, height, width), values from 0 to 1
        weights: (B, rows, columns) of patches; each image has a scale of its own
        titles: a line above each, or several
        path: the file, .png or .svg
        columns: images beside each other
        title: a line above all

    Returns: the path
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
