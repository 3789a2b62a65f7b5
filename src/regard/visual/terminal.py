"""Attention maps as text: colours in a terminal, characters anywhere else."""

import shutil
from collections.abc import Sequence
from itertools import zip_longest

from torch import Tensor

from regard.trace import Trace
from regard.visual.color import Palette, on_color, terminal_palette
from regard.visual.display_width import display_width, fit, letters, printable, token_text
from regard.visual.matrix import labelled, pool_rows

SHADES = " .:-=+*#%@"
TALLEST_LABEL = 12  # letters of a label that is written from top to bottom
MOST_MAPS = 8


def heatmap(
    weights: Tensor | Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    width: int | None = None,
    color: Palette | None = None,
) -> str:
    """Draw an attention map, a row per query and a column per key; the last line is the scale.

    The scale runs from 0 (or the lowest entry, if that is negative) to the largest entry. Key
    labels stand above their columns, from top to bottom where they would not fit side by side.
    Long maps are max-pooled, so that a spike survives, and their labels end in an ellipsis.

    >>> print(heatmap([[1.0, 0.0], [0.25, 0.75]], ["le", "chat"], ["the", "cat"], color="plain"))
         the cat
      le @@@
    chat ::: ###
    0 [ .:-=+*#%@] 1

    Args:
        weights: the map, (M, N); a boolean mask works as well
        queries: M labels; a string counts as its characters
        keys: N labels
        width: columns to stay within; by default, those of the terminal
        color: "true" (24 bits), "256" or "plain"; by default, what standard output can show

    Returns: lines joined by newlines, without a final one

    Raises:
        ValueError: weights that are not an (M, N) matrix or not finite, a wrong number of labels,
            or a width below 16
    """
    matrix = labelled(weights, queries, keys)
    width = shutil.get_terminal_size().columns if width is None else width
    if width < 16:
        raise ValueError(f"a heatmap needs a width of at least 16 columns, got {width}")
    palette = terminal_palette() if color is None else color

    matrix, rows = pool_rows(matrix, [printable(token_text(each)) for each in queries], width)
    gutter = min(max(map(display_width, rows), default=0), width // 3)
    room = width - gutter - 1
    columns = [printable(token_text(each)) for each in keys]
    widest = max((display_width(letter) for key in columns for letter in letters(key)), default=1)
    transposed, columns = pool_rows(matrix.T, columns, max(room // max(widest, 1), 1))
    matrix = transposed.T

    longest = max(map(display_width, columns), default=0)
    if (longest + 1) * len(columns) <= room:
        smallest = 3 if palette == "plain" else 5  # a coloured cell has room for " .25 "
        cell = min(max(longest + 1, smallest), room // max(len(columns), 1))
        header = ["".join(fit(key, cell) for key in columns)]
    else:
        cell = min(widest + 1, room // len(columns))
        header = _upright(columns, cell)

    low, high = (
        (min(matrix.min().item(), 0.0), matrix.max().item()) if matrix.numel() else (0.0, 0.0)
    )
    lines = [" " * (gutter + 1) + line for line in header]
    for label, row in zip(rows, matrix.tolist(), strict=True):
        cells = [_cell(value, low, high, cell, palette) for value in row]
        lines.append(fit(label, gutter, right=True) + " " + "".join(cells))
    scale = "".join(_cell(i, 0, 9, 1, palette) for i in range(10))
    lines.append(f"{low:.2g} [{scale}] {high:.2g}")
    return "\n".join(line.rstrip() for line in lines)


def show(trace: Trace, *, width: int | None = None, color: Palette | None = None) -> str:
    """Draw the maps of a trace as text, averaged over heads.

    If the trace has cross-attention, only its maps are drawn; at most eight.

    >>> import torch
    >>> trace = Trace.of_maps({"cross": torch.eye(2)}, queries=["le", "chat"], keys=["the", "cat"])
    >>> print(show(trace, color="plain"))
    cross
         the cat
      le @@@
    chat     @@@
    0 [ .:-=+*#%@] 1

    Args:
        trace: of one example
        width, color: as for `heatmap`

    Raises:
        ValueError: a trace of a batch, or without calls
    """
    if trace.batch == 1:
        trace = trace.of(0)
    if not trace.calls or any(call.batch is not None for call in trace.calls):
        raise ValueError(
            "expected a trace of one example with at least one attention call; choose an example "
            "with trace.of(0)"
        )
    cross = [call for call in trace.calls if {call.queries, call.keys} == {"target", "source"}]
    parts = []
    for call in (cross or trace.calls)[:MOST_MAPS]:
        heads = f", mean of {call.heads} heads" if call.heads > 1 else ""
        mean = call.map.dense().detach().mean(0)  # (M, N)
        picture = heatmap(mean, *trace.labels(call), width=width, color=color)
        parts.append(f"{call.title}{heads}\n{picture}")
    left = len(trace.calls) - len(parts)
    if left:
        parts.append(
            f"and {left} more: choose by name (--attention, trace.select); a page shows all"
        )
    return "\n\n".join(parts)


def _upright(labels: list[str], cell: int) -> list[str]:
    """Labels from top to bottom, with their last letters next to the map."""
    columns = []
    for label in labels:
        column = letters(label)
        if len(column) > TALLEST_LABEL:
            column = [*column[: TALLEST_LABEL - 1], "…"]
        columns.append(column[::-1])
    lines = [
        "".join(fit(letter, cell) for letter in line)
        for line in zip_longest(*columns, fillvalue="")
    ]
    return lines[::-1]


def _cell(value: float, low: float, high: float, width: int, palette: Palette) -> str:
    share = (value - low) / (high - low) if high > low else 0.0
    if palette == "plain":
        shade = SHADES[round(share * (len(SHADES) - 1))]
        return shade * max(width - 1, 1) + " " * (width > 1)
    is_weight = low >= 0 and high < 1.005  # scores have more digits than a cell has columns
    number = f"{value:.2f}".removeprefix("0") if is_weight and width >= 5 else ""
    return on_color(number.center(width), share, palette)
