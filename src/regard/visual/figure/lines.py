"""Line charts: the metrics of runs by step, quality by time, and panels of several measures."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    ScalarFormatter,
)

from regard.training.metrics import read_metrics
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

COLORS = (
    "#0a58b8",
    "#b35900",
    "#00795c",
    "#8a3a8f",
    "#555d66",
    "#a31545",
)  # colour-blind safe
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "x")
REFERENCE: dict[str, Any] = {"color": "#555d66", "linewidth": 0.8, "linestyle": (0, (1, 3))}
LOG_RATIO = 4  # of the longest to the shortest run, from which time has a logarithmic scale
LABEL_HEIGHT = 0.14  # inches

Points = Mapping[str, Sequence[tuple[float, float]]]
"""(x, y) of each line, by its name."""


class Panel(NamedTuple):
    """One measure of several models."""

    measure: str
    points: Points
    log: bool = False  # whether y is logarithmic


def curves(
    runs: str | Path | Mapping[str, str | Path],
    path: str | Path | None = None,
    *,
    metrics: tuple[str, ...] = ("loss", "valid/"),
) -> Figure:
    """Draw metrics of one run, or of several by name, from `metrics.jsonl`, as PNG or SVG.

    One panel for each metric that any run has.

    Args:
        runs: a run directory or a metrics.jsonl, or several by name
        path: a file to write, .png or .svg
        metrics: names of metrics, or prefixes of names

    Returns: the figure

    Raises:
        FileNotFoundError: a run without metrics.jsonl
        ValueError: none of the metrics in any of the runs
    """
    named = runs if isinstance(runs, Mapping) else {Path(runs).stem: runs}
    found = {name: read_points(Path(run)) for name, run in named.items()}
    present = list({metric: None for columns in found.values() for metric in columns})
    shown = [metric for metric in present if metric.startswith(metrics)]
    if not shown:
        raise ValueError(
            f"none of the metrics {', '.join(metrics)} in {', '.join(map(str, named.values()))}; "
            f"there are {', '.join(present) or 'none at all'}"
        )
    drawn = figure(4.6 * len(shown), 3.0)
    for axes, metric in zip(drawn.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        plot(axes, {name: found[name].get(metric, []) for name in found}, list(found))
        axes.set_xlabel("step", fontsize=9)
        axes.set_ylabel(metric.replace("_", " ").replace("/", ": "), fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        if len(found) > 1:
            label_lines(axes)
    drawn.tight_layout()
    return save(drawn, path)


def learning(
    runs: Points, path: str | Path | None = None, *, metric: str, target: float | None = None
) -> Figure:
    """Draw quality by time, one line for each run, as PNG or SVG.

    Time has a logarithmic scale if the longest run took over four times as long as the shortest.

    Args:
        runs: by name, seconds and quality of every evaluation
        path: a file to write, .png or .svg
        metric: the name of the quality
        target: a quality to mark

    Returns: the figure

    Raises:
        ValueError: no evaluation in any run
    """
    if not any(runs.values()):
        raise ValueError("there is nothing to draw: none of the runs was evaluated")
    drawn = figure(6.4, max(3.6, 0.24 * len(runs)))
    axes = drawn.subplots()
    plot(axes, runs, list(runs))
    ends = [line[-1][0] for line in runs.values() if line]
    if min(ends) > 0 and max(ends) > LOG_RATIO * min(ends):
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis)
    if target is not None:
        axes.axhline(target, **REFERENCE)
        where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "bottom"}
        axes.annotate(f"{target:.2f}", (0.0, target), fontsize=7, color=REFERENCE["color"], **where)
    axes.set_xlabel("seconds of training and evaluation", fontsize=9)
    axes.set_ylabel(metric, fontsize=9)
    label_lines(axes)
    drawn.tight_layout()
    return save(drawn, path)


def panels(
    shown: Sequence[Panel], path: str | Path | None = None, *, against: str, columns: int = 2
) -> Figure:
    """Draw a panel for each measure, with a line for each model, as PNG or SVG.

    Args:
        shown: the panels, of the same models
        path: a file to write, .png or .svg
        against: the name of x, which has a logarithmic scale
        columns: how many panels side by side

    Returns: the figure

    Raises:
        ValueError: no model has a point
    """
    names = list(dict.fromkeys(name for panel in shown for name in panel.points))
    xs = sorted({x for panel in shown for line in panel.points.values() for x, _ in line})
    if not xs:
        raise ValueError("there is nothing to draw: no model has a point")
    rows = -(-len(shown) // columns)
    drawn = figure(4.4 * columns, max(2.7, LABEL_HEIGHT * len(names) + 0.9) * rows)
    places = drawn.subplots(rows, columns, squeeze=False).flatten()
    for axes, panel in zip(places, shown, strict=False):
        plot(axes, _positive(panel.points) if panel.log else panel.points, names)
        axes.set_ylabel(panel.measure, fontsize=9)
        axes.set_xlabel(against, fontsize=9)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(xs))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        if panel.log:
            _logarithmic(axes, panel.points)
        label_lines(axes)
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    drawn.tight_layout()
    return save(drawn, path)


def plot(axes: Axes, points: Points, names: Sequence[str]) -> None:
    """Draw the lines of models, with the same look for a model in every figure.

    Names that share a prefix, up to a hyphen, share a colour and differ in style and marker.
    Earlier lines are wider, so that those which coincide with later ones stay visible.

    Args:
        axes: where
        points: of some of the models
        names: of all models
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("-")[0], []).append(name)
    prefixes = list(groups)
    for place, name in enumerate(names):
        xy = np.array(points.get(name, ()), dtype=float).reshape(-1, 2)
        prefix = name.partition("-")[0]
        index = groups[prefix].index(name)
        axes.plot(
            *xy.T,
            label=name,
            color=COLORS[prefixes.index(prefix) % len(COLORS)],
            linestyle=STYLES[index % len(STYLES)],
            marker=MARKERS[index % len(MARKERS)] if len(xy) <= 20 else None,
            markersize=3.5,
            linewidth=1.2 + (len(names) - 1 - place) * min(1.2, 4 / max(len(names) - 1, 1)),
        )
    axes.tick_params(labelsize=8, length=2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def label_lines(axes: Axes) -> None:
    """Write the name of each line to the right of its end, in its colour, without overlaps."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    ends = {}
    axes.get_xlim(), axes.get_ylim()  # settles the scales
    to_axes = axes.transData + axes.transAxes.inverted()
    for line in lines:
        xy = np.asarray(line.get_xydata(), dtype=float)
        finite = xy[np.isfinite(xy).all(1)]
        if len(finite):
            x, y = to_axes.transform(finite[-1])
            ends[line] = (float(x), float(y))
    families, labels = choose_fonts(str(line.get_label()) for line in ends)
    inches = axes.get_window_extent().height / axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    heights = spread([end[1] for end in ends.values()], LABEL_HEIGHT / inches)
    for (line, end), label, height in zip(ends.items(), labels, heights, strict=True):
        axes.annotate(
            label,
            xy=end,
            xytext=(1.03, height),
            xycoords="axes fraction",
            va="center",
            fontsize=8,
            fontfamily=families,
            parse_math=False,
            color=line.get_color(),
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "lw": 0.5, "alpha": 0.5},
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights at least `gap` apart, in the same order, as near as possible and at most 1.

    >>> [round(height, 2) for height in spread([0.5, 0.95, 0.94], 0.1)]
    [0.5, 1.0, 0.9]
    """
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = [float(height) for height in heights]
    for below, above in itertools.pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    top = 1.0
    for index in reversed(order):
        placed[index] = min(placed[index], top)
        top = placed[index] - gap
    return placed


def read_points(run: Path) -> dict[str, list[tuple[float, float]]]:
    """(step, value) of every metric that a run wrote."""
    file = run / "metrics.jsonl" if run.is_dir() else run
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: has {run} been trained?")
    points: dict[str, list[tuple[float, float]]] = {}
    for line in read_metrics(file):
        for name, value in line.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and name not in ("step", "epoch"):
                points.setdefault(name, []).append((line["step"], float(value)))
    return points


def _positive(points: Points) -> Points:
    """What a logarithmic scale can show: a gradient may underflow to 0."""
    return {name: [(x, y) for x, y in line if y > 0] for name, line in points.items()}


def _logarithmic(axes: Axes, points: Points) -> None:
    """A logarithmic y; if it spans less than two powers of ten, with numbers between them."""
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    ys = [y for line in points.values() for _, y in line if y > 0]
    if ys and max(ys) < 100 * min(ys):
        _plain_numbers(axes.yaxis)


def _plain_numbers(axis: Axis) -> None:
    """Ticks at 1, 2, 5, 10 and so on."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
