"""The blockwise path: blocks of query rows, recomputed in backward.

For any score, any normalizer, dropout, and a bias that needs a gradient. It holds
O(block · N) numbers instead of M · N.
"""

from typing import Any

import torch
from torch import Tensor

from regard.core.blocks import block_rows, by_rows, can_inspect_values
from regard.core.lower import DotScore, lower
from regard.core.request import Request
from regard.paths.additive import KernelScore, with_kernel
from regard.paths.reference import context
from regard.system.torch_internals import TorchDispatchMode


def blockwise(request: Request) -> Tensor:
    """Scores → map → weighted sum, a block of queries at a time, (..., M, Dv)."""
    request = with_kernel(lower(request))

    def block(query: Tensor, bias: Tensor | None, rows: slice) -> Tensor:
        return context(request, request.scores(query, bias), rows)

    return by_rows(
        block,
        request.query,
        request.bias,
        elements=row_elements(request),
    )


def row_elements(request: Request) -> int:
    """How many numbers one row of a lowered request needs while it is computed."""
    elements = request.leading.numel() * request.keys
    if isinstance(request.score, DotScore | KernelScore):
        return elements
    pessimistic = elements * max(request.query.shape[-1], 1)
    if block_rows(pessimistic) >= request.query.shape[-2]:
        return pessimistic  # one block in any case
    return score_memory(request)


class Sizes(TorchDispatchMode):
    """Records the size of each operation's result."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else (result,)
        self.seen += [t.numel() for t in results if isinstance(t, Tensor)]
        return result


def score_memory(request: Request) -> int:
    """The numbers by which the largest tensor inside the score grows with one more query row.

    The score is tried on one row and on two. Tensors that do not grow, such as norms of the keys,
    do not count. Where it cannot be tried, N × D for a row is assumed.
    """
    least = request.leading.numel() * request.keys
    if can_inspect_values(request.query) and request.query.shape[-2] > 1:
        one, two = _sizes(request, 1), _sizes(request, 2)
        if len(one) == len(two):  # the same operations
            return max(least, *(b - a for a, b in zip(one, two, strict=True)))
    return least * max(request.query.shape[-1], 1)


def _sizes(request: Request, rows: int) -> list[int]:
    bias = None if request.bias is None else request.bias[..., :rows, :]
    with torch.no_grad(), torch.random.fork_rng(devices=[]), Sizes() as sizes:
        request.scores(request.query[..., :rows, :], bias)
    return sizes.seen
