"""Attention as PNG and SVG figures, through matplotlib (the extra `regard[visual]`)."""

from regard.visual.figure.heatmap import heatmap

__all__ = ["heatmap"]
