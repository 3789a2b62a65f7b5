"""Two maps of the same words, and where they differ."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.heatmap import CELL, LARGEST, Colors, draw_map
from regard.visual.matrix import labelled


def comparison(
    left: Tensor | Sequence[Sequence[float]],
    right: Tensor | Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    path: str | Path,
    *,
    names: tuple[str, str] = ("left", "right"),
    colors: Colors = "viridis",
) -> Path:
    """Draw two maps and their difference, right − left, as PNG or SVG.

    In the difference blue is where the left one has more weight, red where the right one has.

    Args:
        left, right: maps (M, N)
        queries: M labels
        keys: N labels
        path: the file, .png or .svg
        names: what to call the maps
        colors: of the maps, "viridis" or "gray"

    Returns: the path

    Raises:
        ValueError: maps of different shapes, empty, or that do not fit their labels
    """
    maps = [labelled(each, queries, keys, what="a comparison") for each in (left, right)]
    if maps[0].numel() == 0:
        raise ValueError(f"a map of shape {tuple(maps[0].shape)} has nothing to draw")
    if max(maps[0].shape) > LARGEST:
        raise ValueError(
            f"a comparison draws maps of up to {LARGEST} words, got {tuple(maps[0].shape)}; pool "
            "them first"
        )
    difference = maps[1] - maps[0]
    most = max(difference.abs().max().item(), 1e-3)
    size = CELL if max(difference.shape) <= 30 else CELL * 30 / max(difference.shape)
    wide, high = max(size * len(keys), 1.2) + 1.7, max(size * len(queries), 0.8) + 1.3
    drawn = figure(3 * wide, high)
    places = drawn.subplots(1, 3)
    rows, columns = list(queries), list(keys)
    for place, matrix, name in zip(places, maps, names, strict=False):
        draw_map(place, matrix, rows, columns, colors=colors, title=name)
    title = f"{names[1]} − {names[0]}"
    draw_map(
        places[2], difference, rows, columns, colors="RdBu_r", limits=(-most, most), title=title
    )
    return save(drawn, path)
