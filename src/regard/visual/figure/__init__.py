"""Attention as PNG and SVG figures, through matplotlib (the extra `regard[visual]`)."""

from pathlib import Path

from regard.trace import Trace
from regard.visual.figure.comparison import comparison
from regard.visual.figure.curves import curves
from regard.visual.figure.diagnostics import diagnostics
from regard.visual.figure.grid import grid, one_example
from regard.visual.figure.heatmap import heatmap
from regard.visual.figure.strip import strip

__all__ = ["comparison", "curves", "diagnostics", "draw", "grid", "heatmap", "strip"]


def draw(trace: Trace, path: str | Path) -> Path:
    """Draw a trace: its map if it is one, else the grid of all calls and heads; PNG or SVG.

    Args:
        trace: of one example
        path: the file, .png or .svg

    Returns: the path
    """
    calls = one_example(trace, "a figure")
    if len(calls) > 1 or calls[0].heads > 1:
        return grid(trace, path)
    one = trace.of(0) if trace.batch == 1 else trace
    return heatmap(calls[0].map[0], *one.labels(calls[0]), path, title=calls[0].name)
