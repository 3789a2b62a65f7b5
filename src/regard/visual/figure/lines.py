"""Several things about several models, each against one and the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullLocator,
    ScalarFormatter,
)

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.curves import INK, LINES
from regard.visual.figure.fonts import choose_fonts

MARKS = ("o", "s", "^", "D", "v", "x")
FINE: dict[str, Any] = {"color": "#555d66", "linewidth": 0.8, "linestyle": (0, (1, 3))}

Points = Mapping[str, Sequence[tuple[float, float]]]
"""By the name of a model, x and y."""


class Panel(NamedTuple):
    """One thing about the models."""

    about: str
    points: Points
    log: bool = False  # whether its scale is logarithmic


def panels(shown: Sequence[Panel], path: str | Path, *, against: str, columns: int = 2) -> Path:
    """Draw a panel for each thing, with a line for each model, as PNG or SVG.

    The scale to the right is logarithmic, that of a panel where it says so.

    Args:
        shown: the panels, all of the same models
        path: the file, .png or .svg
        against: what goes to the right
        columns: how many panels side by side

    Returns: the path

    Raises:
        ValueError: nothing to draw
    """
    names = list(dict.fromkeys(name for panel in shown for name in panel.points))
    xs = sorted({x for panel in shown for line in panel.points.values() for x, _ in line})
    if not xs:
        raise ValueError("there is nothing to draw: no model has a point")
    rows = -(-len(shown) // columns)
    drawn = figure(3.5 * columns, 2.7 * rows)
    places = drawn.subplots(rows, columns, squeeze=False).flatten()
    for place, panel in zip(places, shown, strict=False):
        plot(place, _positive(panel.points) if panel.log else panel.points, names)
        place.set_title(panel.about, fontsize=9)
        place.set_xscale("log")
        place.xaxis.set_major_locator(FixedLocator(xs))
        place.xaxis.set_minor_locator(NullLocator())
        place.xaxis.set_major_formatter(ScalarFormatter())
        if panel.log:
            _log(place, panel.points)
    for place in places[len(shown) :]:
        place.set_visible(False)
    for place in places[max(0, len(shown) - columns) : len(shown)]:
        place.set_xlabel(against, fontsize=9)
    drawn.tight_layout()
    legend(drawn, places[0])
    return save(drawn, path)


def _positive(points: Points) -> Points:
    """What a logarithmic scale can show: a gradient may be too small to be told from 0."""
    return {name: [(x, y) for x, y in line if y > 0] for name, line in points.items()}


def _log(place: Axes, points: Points) -> None:
    """A logarithmic scale; where it spans less than two powers of ten, with numbers between."""
    place.set_yscale("log")
    ys = [y for line in points.values() for _, y in line if y > 0]
    place.yaxis.set_minor_locator(NullLocator())
    if ys and max(ys) < 100 * min(ys):
        plain_numbers(place.yaxis)


def plain_numbers(axis: Axis) -> None:
    """Write 1, 2, 5, 10 and so on along a logarithmic scale."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def plot(place: Axes, points: Points, names: Sequence[str]) -> None:
    """Lines of models, the same for a model wherever it is drawn.

    Names that begin alike, up to a hyphen, share a colour and differ in their lines and marks.

    Args:
        points: of some of the models
        names: of all of them
    """
    _, labels = choose_fonts(names)
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(name.partition("-")[0], []).append(name)
    order = list(kinds)
    for label, name in zip(labels, names, strict=True):
        line = points.get(name, ())
        kind = name.partition("-")[0]
        index = kinds[kind].index(name)
        place.plot(
            [x for x, _ in line],
            [y for _, y in line],
            label=label,
            color=INK[order.index(kind) % len(INK)],
            linestyle=LINES[index % len(LINES)],
            marker=MARKS[index % len(MARKS)],
            markersize=3.5,
            linewidth=1.4,
        )
    place.tick_params(labelsize=8, length=2)
    place.spines[["top", "right"]].set_visible(False)
    place.grid(alpha=0.25, linewidth=0.6)


def legend(drawn: Figure, place: Axes) -> None:
    """What the lines of a place mean, to the right of all places."""
    handles, labels = place.get_legend_handles_labels()
    families, labels = choose_fonts(labels)
    look: dict[str, Any] = {"family": families, "size": 8}
    drawn.legend(
        handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, prop=look
    )
