"""Attention maps as matrices: checked against their labels, and max-pooled."""

from collections.abc import Sequence

import torch
from torch import Tensor


def labelled(
    weights: Tensor | Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    what: str = "a heatmap",
) -> Tensor:
    """The map as an (M, N) matrix of float64 on the CPU, if it fits its labels.

    >>> labelled([[1.0, 0.0]], ["le"], ["the", "cat"]).shape
    torch.Size([1, 2])

    Args:
        weights: the map, (M, N)
        queries: M labels
        keys: N labels
        what: the name of the picture, for error messages

    Raises:
        ValueError: weights that are not an (M, N) matrix or not finite, or a wrong number of labels
    """
    matrix = torch.as_tensor(weights).detach().to("cpu", torch.float64)  # (M, N)
    if matrix.dim() != 2:
        raise ValueError(
            f"{what} draws one map of shape (queries, keys), got shape {tuple(matrix.shape)};"
            " choose a batch entry and a head first, as in weights[0, 0]"
        )
    for name, labels, count in (
        ("query", queries, matrix.shape[0]),
        ("key", keys, matrix.shape[1]),
    ):
        if len(labels) != count:
            raise ValueError(
                f"expected {count} {name} labels for a map of shape {tuple(matrix.shape)},"
                f" got {len(labels)}"
            )
    finite = matrix.isfinite()
    if not finite.all():
        row, column = (~finite).nonzero()[0].tolist()
        raise ValueError(
            f"{what} needs finite weights, got {matrix[row, column].item()} for query {row}"
            f" and key {column}"
        )
    return matrix


def pool_rows(matrix: Tensor, labels: list[str], limit: int) -> tuple[Tensor, list[str]]:
    """Max-pool a matrix to at most `limit` rows; a label that stands for several ends in "…".

    >>> pool_rows(torch.tensor([[1.0], [3.0], [2.0]]), ["a", "b", "c"], 2)
    (tensor([[3.],
            [2.]]), ['a…', 'c'])
    """
    size = -(-len(labels) // limit)
    if size <= 1:
        return matrix, labels
    pooled = torch.stack([block.amax(0) for block in matrix.split(size)])
    starts = range(0, len(labels), size)
    return pooled, [
        label + "…" * (start + 1 < len(labels))
        for start, label in zip(starts, labels[::size], strict=True)
    ]
