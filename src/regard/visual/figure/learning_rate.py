"""The curve of a learning rate range test."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.lines import REFERENCE, plot


def learning_rates(
    points: Sequence[tuple[float, float]],
    path: str | Path | None = None,
    *,
    suggestion: float | None = None,
) -> Figure:
    """Draw the loss against the learning rate, as PNG or SVG.

    Args:
        points: (learning rate, loss)
        path: a file to write, .png or .svg
        suggestion: a learning rate to mark

    Returns: the figure
    """
    drawn = figure(6.4, 3.6)
    axes = drawn.subplots()
    plot(axes, {"loss": points}, ["loss"])
    axes.set_xscale("log")
    if suggestion is not None:
        axes.axvline(suggestion, **REFERENCE)
        axes.annotate(
            f"suggestion {suggestion:g}",
            (suggestion, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color=REFERENCE["color"],
        )
    axes.set_xlabel("learning rate", fontsize=9)
    axes.set_ylabel("training loss, smoothed", fontsize=9)
    drawn.tight_layout()
    return save(drawn, path)
