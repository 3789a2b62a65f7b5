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
    request = with_kernel(lower(request.zero_hidden()))

    def block(query: Tensor, bias: Tensor | None, rows: slice) -> Tensor:
        scores = request.scores(query, bias)
        weights = request.apply_dropout(request.weights(scores, rows), rows)
        return context(weights, request.value)

    return by_rows(block, request.query, request.bias, elements=row_elements(request))


def row_elements(request: Request) -> int:
    """How many numbers one row of a lowered request needs while it is worked on."""
    elements = request.leading.numel() * request.keys
    if isinstance(request.score, DotScore | KernelScore):
        return elements
    pessimistic = elements * max(request.query.shape[-1], 1)
    if block_rows(pessimistic) >= request.query.shape[-2]:
        return pessimistic  # one block in any case
    return score_memory(request)
