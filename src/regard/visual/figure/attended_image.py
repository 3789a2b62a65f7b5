"""Images with what was looked at on them."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import lettering

SIDE = 1.35  # inches of an image


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
        titles: a line above each
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
    written = lettering([*titles, title or ""])
    wide, high = min(columns, len(images)), -(-len(images) // columns)
    drawn = figure(SIDE * wide, (2 * SIDE + 0.35) * high + 0.4)
    grid = drawn.subplots(2 * high, wide, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for number, (image, weight) in enumerate(zip(images, weights, strict=True)):
        row, column = divmod(number, columns)
        plain, shaded = grid[2 * row, column], grid[2 * row + 1, column]
        plain.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=1)
        plain.set_title(written.labels[number], fontsize=8, family=written.families)
        height, width = image.shape
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        shaded.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=1)
        shaded.imshow(weight.numpy(), cmap="inferno", alpha=0.72, extent=extent, vmin=0)
    if title:
        drawn.suptitle(written.labels[-1], fontsize=11, family=written.families)
    drawn.tight_layout(pad=0.3)
    return save(drawn, path)
