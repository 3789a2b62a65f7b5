"""How fast several runs became how good."""

from pathlib import Path

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.lines import FINE, Points, legend, plain_numbers, plot

APART = 4  # times as long as the shortest run, which would be hard to see beside the longest


def learning(runs: Points, path: str | Path, *, metric: str, target: float | None = None) -> Path:
    """Draw quality against time, one line for each run, as PNG or SVG.

    Names that begin alike, up to a hyphen, share a colour and differ in their lines and marks.
    The scale of time is logarithmic if some run took many times longer than another.

    Args:
        runs: by name, seconds and quality of every evaluation
        path: the file, .png or .svg
        metric: what the quality is
        target: a quality to mark

    Returns: the path

    Raises:
        ValueError: nothing to draw
    """
    if not any(runs.values()):
        raise ValueError("none of the runs was evaluated: there is nothing to draw")
    drawn = figure(6.4, max(3.6, 0.24 * len(runs)))
    place = drawn.subplots()
    plot(place, runs, list(runs))
    ends = [line[-1][0] for line in runs.values() if line]
    if min(ends) > 0 and max(ends) > APART * min(ends):
        place.set_xscale("log")
        plain_numbers(place.xaxis)
    if target is not None:
        place.axhline(target, **FINE)
        place.annotate(
            f"{target:.2f}",
            (1.0, target),
            xycoords=("axes fraction", "data"),
            va="bottom",
            ha="right",
            fontsize=7,
            color=FINE["color"],
        )
    place.set_xlabel("seconds of training and evaluation", fontsize=9)
    place.set_ylabel(metric, fontsize=9)
    drawn.tight_layout()
    legend(drawn, place)
    return save(drawn, path)
