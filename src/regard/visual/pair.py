"""Two inputs that attend to each other: both maps, in a terminal."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.trace import Trace
from regard.visual.color import Palette
from regard.visual.display_width import printable
from regard.visual.terminal import heatmap


@dataclass(frozen=True)
class AttendedPair:
    """Both sides with their weights.

    >>> import torch
    >>> weights = torch.tensor([[0.25, 0.75]])
    >>> words = ["is", "red"], ["rot", "ist"]
    >>> pair = AttendedPair(*words, weights, weights.flip(1), title="yes (97%)")
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
        left_weights, right_weights: (glimpses, L) and (glimpses, R), each row sums to 1
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

    @classmethod
    def from_trace(cls, trace: Trace) -> "AttendedPair":
        """Return the pair of a trace of the task pair."""
        affinity, columns = trace.about.get("affinity"), trace.about.get("columns")
        right = trace.tokens["right"]
        if columns is not None and (columns < 1 or len(right) % columns):
            raise ValueError(f"{len(right)} cells do not fill rows of {columns}")
        return cls(
            trace.tokens["left"],
            right,
            trace["left"].map.dense()[0],
            trace["right"].map.dense()[0],
            None if affinity is None else torch.tensor(affinity),
            columns,
            str(trace.about.get("title", "")),
        )

    def show(self, *, width: int | None = None, color: Palette | None = None) -> str:
        """Both maps for a terminal, and the affinity where there is one."""
        parts = [printable(self.title)] if self.title else []
        if self.left:
            weights, rows = self.left_weights, numbered("left", len(self.left_weights))
            parts.append(heatmap(weights, rows, self.left, width=width, color=color))
        if self.columns is None:
            weights, rows = self.right_weights, numbered("right", len(self.right_weights))
            parts.append(heatmap(weights, rows, self.right, width=width, color=color))
        else:
            names = [f"column {n + 1}" for n in range(self.columns)]
            for number, weights in enumerate(self.right_weights, start=1):
                if len(self.right_weights) > 1:
                    parts.append(f"glimpse {number}")
                grid = weights.view(-1, self.columns)
                rows = [f"row {n + 1}" for n in range(len(grid))]
                parts.append(heatmap(grid, rows, names, width=width, color=color))
        if self.affinity is not None and self.affinity.numel():
            parts.append(heatmap(self.affinity, self.left, self.right, width=width, color=color))
        return "\n".join(parts)


def numbered(name: str, count: int) -> list[str]:
    """A name for each of several glimpses; one alone needs no number.

    >>> numbered("left", 1), numbered("left", 2)
    (['left'], ['left 1', 'left 2'])
    """
    return [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]
