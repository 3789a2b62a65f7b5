"""Attention as PNG and SVG figures, by matplotlib (the extra `regard[visual]`)."""

from pathlib import Path

from matplotlib.figure import Figure

from regard.trace import Trace
from regard.visual.figure.diagnostics import diagnostics
from regard.visual.figure.grid import grid, one_example
from regard.visual.figure.heatmap import comparison, heatmap
from regard.visual.figure.lines import curves
from regard.visual.figure.strip import strip
from regard.visual.figure.workflow import workflow

__all__ = ["comparison", "curves", "diagnostics", "draw", "grid", "heatmap", "strip", "workflow"]


def draw(trace: Trace, path: str | Path | None = None) -> Figure:
    """Draw the map of a trace, or a grid of the maps of all calls and heads, as PNG or SVG.

    Args:
        trace: of one example
        path: a file to write, .png or .svg

    Returns: the figure
    """
    one = one_example(trace, "a figure")
    calls = one.calls
    if len(calls) > 1 or calls[0].heads > 1:
        return grid(one, path)
    (call,) = calls
    labels = one.labels(call)
    names = (f"query ({call.queries})", f"key ({call.keys})")
    return heatmap(call.map[0], *labels, path, title=call.title, names=names)
