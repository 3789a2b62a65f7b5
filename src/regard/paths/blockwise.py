"""The blockwise path: blocks of query rows, recomputed in backward.

For any score, any normalizer, dropout, and a bias that needs a gradient. It holds
O(block · N) numbers instead of M · N.
"""

from torch import Tensor

from regard.core.blocks import block_rows, by_rows
from regard.core.lower import DotScore, lower
from regard.core.request import Request
from regard.paths.additive import KernelScore, with_kernel
from regard.paths.reference import context
from regard.paths.score_memory import score_memory


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
        reads=(request.key, request.value),
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
