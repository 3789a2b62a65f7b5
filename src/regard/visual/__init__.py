"""Pictures of attention."""

from regard.visual.terminal import heatmap

__all__ = ["heatmap"]
