"""Two inputs that attend to each other, as a figure: bars, a grid for a scene, or both maps."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon, Rectangle

from regard.trace import Trace
from regard.visual.display_width import token_text
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.figure.heatmap import draw_map

if TYPE_CHECKING:
    from regard.visual.pair import AttendedPair

PAINT = {"red": "#c44234", "blue": "#2f6fbe", "green": "#3c9a5f", "yellow": "#e3b22b"}
GLIMPSES = ("#2f6fbe", "#e08a3c", "#3c9a5f", "#8a5fb0")
LINE, SIDE = 0.26, 3.4  # inches of a token, and of a side


def draw_pair(pair: "AttendedPair", path: str | Path | None = None) -> Figure:
    """Draw the weights of both sides and the affinity between them.

    Args:
        pair: what to draw
        path: a file to write, .png or .svg
    """
    scene = pair.columns is not None
    rows = max(len(pair.left), 0 if scene else len(pair.right), 8)
    pictures = len(pair.right_weights) if scene else 1  # each glimpse of a scene has its own
    share = 1.0 if pictures == 1 else 0.7
    # cells of the affinity are squares as high as a bar: no wider than they need, and labels
    square = (LINE * len(pair.right) + 1.2) / SIDE
    ratios = [1.0] + [share] * pictures + ([] if pair.affinity is None else [square])
    drawn = figure(SIDE * sum(ratios), rows * LINE + 1.0)
    axes = drawn.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
    _bars(axes[0], pair.left, pair.left_weights.tolist(), "left")
    if scene:
        for number, weights in enumerate(pair.right_weights.tolist()):
            _scene(axes[1 + number], pair, weights, number if pictures > 1 else None)
    else:
        _bars(axes[1], pair.right, pair.right_weights.tolist(), "right")
    if pair.affinity is not None:
        draw_map(
            axes[-1],
            pair.affinity.double(),
            pair.left,
            pair.right,
            colors="coolwarm",
            limits=(-1.0, 1.0),
            title="affinity",
        )
    return _titled(drawn, pair.title, path)


def draw_aligned(trace: Trace, path: str | Path | None = None) -> Figure:
    """Draw both maps of aligned co-attention: what each token attends to on the other side.

    Args:
        trace: of the task pair
        path: a file to write, .png or .svg
    """
    calls = trace["left"], trace["right"]
    widths = [LINE * call.shape[-1] + 1.4 for call in calls]
    drawn = figure(sum(widths), LINE * max(call.shape[-2] for call in calls) + 1.6)
    axes = drawn.subplots(1, 2, width_ratios=widths)
    for one, call in zip(axes, calls, strict=True):
        weights, title = call.map.dense()[0].double(), f"{call.queries} to {call.keys}"
        draw_map(one, weights, *trace.labels(call), limits=(0.0, 1.0), title=title)
    return _titled(drawn, str(trace.about.get("title", "")), path)


def _titled(drawn: Figure, title: str, path: str | Path | None) -> Figure:
    """The figure with a line above it, saved."""
    if title:
        written = choose_fonts([title])
        style: dict[str, Any] = {"fontfamily": written.families, "fontweight": "bold"}
        drawn.suptitle(written.labels[0], fontsize=11, parse_math=False, **style)
    drawn.tight_layout()
    return save(drawn, path)


def _bars(axes: Axes, labels: list[str], weights: list[list[float]], title: str) -> None:
    """A bar for each token, or thinner ones for each glimpse at it."""
    written = choose_fonts(map(token_text, labels))
    places = range(len(labels))
    height = 0.7 / len(weights)
    for number, glimpse in enumerate(weights):
        shifted = [place + (number - (len(weights) - 1) / 2) * height for place in places]
        axes.barh(shifted, glimpse, color=GLIMPSES[number % len(GLIMPSES)], height=height)
    axes.set_yticks(places, written.labels, fontfamily=written.families, fontsize=9)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.invert_yaxis()
    axes.tick_params(length=0, labelsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(f"{title}: weight of each token", fontsize=10)


def _scene(axes: Axes, pair: "AttendedPair", weights: list[float], glimpse: int | None) -> None:
    """The picture, each cell as dark as its weight in a glimpse."""
    assert pair.columns is not None
    for place, (name, weight) in enumerate(zip(pair.right, weights, strict=True)):
        row, column = divmod(place, pair.columns)
        shade = str(1.0 - 0.6 * weight)  # a flat map is pale
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=shade, edgecolor="#999999"))
        axes.text(column + 0.04, row + 0.16, f"{weight:.2f}", fontsize=7, color="#1f2430")
        color, _, shape = name.partition(" ")
        if color not in PAINT:
            continue
        x, y = column + 0.5, row + 0.55
        style: dict[str, Any] = {"facecolor": PAINT[color], "edgecolor": "white"}
        if shape == "circle":
            axes.add_patch(Circle((x, y), 0.27, **style))
        elif shape == "square":
            axes.add_patch(Rectangle((x - 0.25, y - 0.25), 0.5, 0.5, **style))
        else:
            corners = [(x, y - 0.3), (x - 0.3, y + 0.25), (x + 0.3, y + 0.25)]
            axes.add_patch(Polygon(corners, **style))
    axes.set_xlim(0, pair.columns)
    axes.set_ylim(len(weights) // pair.columns, 0)
    axes.set_aspect("equal")
    axes.axis("off")
    if glimpse is None:
        axes.set_title("right: weight of each cell", fontsize=10)
    else:
        color = GLIMPSES[glimpse % len(GLIMPSES)]
        axes.set_title(f"right, glimpse {glimpse + 1}", fontsize=10, color=color)
