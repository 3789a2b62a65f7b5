"""What carried each recommendation: reasons down, items across."""

from collections.abc import Sequence
from pathlib import Path

import torch

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.heatmap import draw_map

CELL = 0.3  # inches
LONGEST = 44  # letters of a title: two parts of one film differ at the end


def draw_reasons(
    reasons: Sequence[str], items: Sequence[str], gives: Sequence[Sequence[float]], path: str | Path
) -> Path:
    """Draw what each reason adds to, or takes from, the score of each item.

    Args:
        reasons: R names; a past item has its attention weight in front
        items: C names
        gives: (R, C)
        path: the file, .png or .svg
    """
    matrix = torch.tensor(gives, dtype=torch.float64)
    most = float(matrix.abs().max()) or 1.0
    drawn = figure(CELL * len(items) + 3.2, CELL * len(reasons) + 2.0)
    draw_map(
        drawn.add_subplot(),
        matrix,
        reasons,
        items,
        colors="RdBu_r",
        limits=(-most, most),
        title="what each reason adds to the score",
        longest=LONGEST,
    )
    return save(drawn, path)
