"""Attention maps and tables as small pieces of HTML, for notebooks."""

from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor

from regard.core.map import AttentionMap
from regard.visual.display_width import token_text
from regard.visual.matrix import pool_rows
from regard.visual.svg import heatmap

SIZE = 24  # most rows and columns that are drawn of a map
HEADS = 4  # most matrices that are drawn of a map with leading dimensions
CHEAP = 2**22  # weights up to which a map is computed as a whole
SHORT = 16  # letters of a label


def map_html(map: AttentionMap) -> str:
    """The first matrices of a map, max-pooled; of a large map only its first rows and columns."""
    title = repr(map)
    try:
        with torch.no_grad():
            large = map.shape.numel() > CHEAP
            weights = map[..., :SIZE, :SIZE] if large else map.dense()
    except (RuntimeError, ValueError) as error:  # its inputs have changed: show the reason
        return f"<pre>{escape(title)}\n{escape(str(error))}</pre>"
    *leading, M, N = weights.shape
    count = torch.Size(leading).numel()
    drawn = min(count, HEADS) if M and N else 0
    if count > drawn > 0:
        title += f": the first {drawn} of {count}"
    if large:
        title += f", {M} queries and {N} keys of each"
    rows, columns = ([str(index) for index in range(size)] for size in (M, N))
    matrices = weights.reshape(count, M, N)[:drawn]
    drawings = [matrix_svg(matrix, rows, columns, title=repr(map)) for matrix in matrices]
    return _figure(title, "".join(drawings))


def matrix_html(weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str) -> str:
    """A map (M, N) with labels, below a title."""
    return _figure(title, matrix_svg(weights, rows, columns, title=title))


def matrix_svg(weights: Tensor, rows: Sequence[str], columns: Sequence[str], *, title: str) -> str:
    """A map (M, N) as SVG, max-pooled to `SIZE`; weights outside of [0, 1] are scaled to it."""
    matrix = weights.detach().to("cpu", torch.float64).nan_to_num()
    matrix, names = pool_rows(matrix, [_short(label) for label in rows], SIZE)
    matrix, others = pool_rows(matrix.T, [_short(label) for label in columns], SIZE)
    if matrix.numel() and (matrix.min() < 0 or matrix.max() > 1):
        matrix = matrix - matrix.min()
        matrix = matrix / matrix.max().clamp(min=1e-300)
    return heatmap(matrix.T, names, others, title=title)


def table_html(rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table whose first row is its head.

    >>> table_html([("", "quality"), ("<b>", "0.5")], "two columns")[-47:]
    '<tr><td>&lt;b&gt;</td><td>0.5</td></tr></table>'
    """
    head, *others = rows
    lines = [f"<caption>{escape(caption)}</caption>", _line(head, "th")]
    return f"<table>{''.join(lines + [_line(row, 'td') for row in others])}</table>"


def _line(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _figure(title: str, drawings: str) -> str:
    """Drawings side by side below a title, dark on white in every theme."""
    style = "margin:0;padding:.3em;background:#fff;color:#000;display:inline-block"
    row = f'<div style="display:flex;flex-wrap:wrap;gap:1em">{drawings}</div>'
    return f'<figure style="{style}"><figcaption>{escape(title)}</figcaption>{row}</figure>'


def _short(label: str) -> str:
    label = token_text(label)
    return label if len(label) <= SHORT else label[: SHORT - 1] + "…"
