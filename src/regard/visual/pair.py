"""Two inputs that looked at each other: both maps, in a terminal and as a figure."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.visual.color import Palette
from regard.visual.terminal import heatmap


@dataclass(frozen=True)
class SeenPair:
    """Both sides with their weights.

    >>> import torch
    >>> weights = torch.tensor([0.25, 0.75])
    >>> pair = SeenPair(["is", "red"], ["rot", "ist"], weights, weights.flip(0), title="yes (97%)")
    >>> print(pair.show(width=40, color="plain"))
    yes (97%)
         is  red
    left --- @@@
    0 [ .:-=+*#%@] 0.75
          rot ist
    right @@@ ---
    0 [ .:-=+*#%@] 0.75

    Attributes:
        left, right: tokens, or what is in the cells of a scene, row by row
        left_weights, right_weights: (L,) and (R,), each sums to 1
        affinity: (L, R), how much each has to do with each, −1 to 1; None for alternating attention
        columns: of the grid, if the right side is a scene
        title: what is written above
    """

    left: list[str]
    right: list[str]
    left_weights: Tensor
    right_weights: Tensor
    affinity: Tensor | None = None
    columns: int | None = None
    title: str = ""

    def show(self, *, width: int | None = None, color: Palette | None = None) -> str:
        """Both maps for a terminal, and the affinity where there is one."""
        parts = [self.title] if self.title else []
        if self.left:
            parts.append(
                heatmap(self.left_weights[None], ["left"], self.left, width=width, color=color)
            )
        if self.columns is None:
            parts.append(
                heatmap(self.right_weights[None], ["right"], self.right, width=width, color=color)
            )
        else:
            grid = self.right_weights.view(-1, self.columns)
            rows = [f"row {n + 1}" for n in range(len(grid))]
            names = [f"column {n + 1}" for n in range(self.columns)]
            parts.append(heatmap(grid, rows, names, width=width, color=color))
        if self.affinity is not None and self.affinity.numel():
            parts.append(heatmap(self.affinity, self.left, self.right, width=width, color=color))
        return "\n".join(parts)

    def figure(self, path: str | Path) -> None:
        """Write a PNG or SVG figure."""
        from regard.visual.figure.pair import draw_pair

        draw_pair(self, path)
