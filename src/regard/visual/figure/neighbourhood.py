"""A node of a graph and the nodes it attends to, with the weights of the edges."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

MOST = 24  # neighbours that a figure shows, those with the largest weights
UNKNOWN = "#bbbbbb"


class Neighbour(NamedTuple):
    """A node that another one attends to."""

    name: str
    label: str | None  # its class; None if unknown
    weight: float


def neighbourhood(
    center: str,
    label: str | None,
    neighbours: Sequence[Neighbour],
    path: str | Path | None = None,
    *,
    classes: Sequence[str] = (),
    title: str | None = None,
) -> Figure:
    """Draw a node in the middle of those it attends to; the width of an edge is its weight.

    Args:
        center: the name of the node
        label: its class
        neighbours: what it attends to; of more than 24 those with the largest weights
        path: a file to write, .png or .svg
        classes: in the order of their colours; those that occur if not given
        title: a line above

    Returns: the figure
    """
    if not neighbours:
        raise ValueError(f"node {center!r} attends to no node, so there is nothing to draw")
    shown = sorted(neighbours, key=lambda node: -node.weight)[:MOST]
    found = [node.label for node in shown if node.label is not None]
    known = list(classes) or sorted({*found, *([] if label is None else [label])})
    colors = {name: f"C{index % 10}" for index, name in enumerate(known)}
    drawn = figure(6.4, 5.6)
    axes = drawn.add_subplot()
    texts = [
        center,
        *(f"{_called(node.name, center)}  {node.weight:.2f}" for node in shown),
        title or "",
        *known,
    ]
    written = choose_fonts(texts)
    heaviest = max(node.weight for node in shown) or 1.0
    for place, node in enumerate(shown):
        angle = math.pi / 2 - 2 * math.pi * place / len(shown)
        x, y = math.cos(angle), math.sin(angle)
        width = 0.4 + 7.0 * node.weight / heaviest
        axes.plot((0, x), (0, y), color="#7a869a", linewidth=width, zorder=1, alpha=0.65)
        color = UNKNOWN if node.label is None else colors.get(node.label, UNKNOWN)
        axes.scatter(x, y, s=260, color=color, edgecolor="white", zorder=2)
        axes.text(
            1.17 * x,
            1.13 * y,
            written.labels[1 + place],
            ha="left" if x > 0.05 else "right" if x < -0.05 else "center",
            va="bottom" if y > 0.98 else "top" if y < -0.98 else "center",
            fontsize=8,
            family=written.families,
        )
    color = UNKNOWN if label is None else colors.get(label, UNKNOWN)
    axes.scatter(0, 0, s=760, color=color, edgecolor="black", linewidth=1.6, zorder=3)
    axes.text(
        0,
        -0.14,
        written.labels[0],
        ha="center",
        va="top",
        fontsize=9,
        weight="bold",
        zorder=4,
        family=written.families,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1},
    )
    present = {*found, *([] if label is None else [label])}
    names = dict(zip(known, written.labels[2 + len(shown) :], strict=True))
    for name in known:
        if name in present:
            axes.scatter([], [], s=80, color=colors[name], label=names[name])
    if present:
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.02, 1),
            frameon=False,
            prop={"family": written.families},
        )
    if title:
        axes.set_title(written.labels[1 + len(shown)], fontsize=11, family=written.families)
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.35, 1.35)
    axes.set_aspect("equal")
    axes.axis("off")
    return save(drawn, path)


def _called(name: str, center: str) -> str:
    return "itself" if name == center else name
