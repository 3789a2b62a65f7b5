"""The blockwise path: blocks of query rows, recomputed in backward.

For any score, any normalizer, dropout, and a bias that needs a gradient. It holds
O(block · N) numbers instead of M · N.
"""

from torch import Tensor

from regard.core import blocks
from regard.core.blocks import by_rows
from regard.core.lower import DotScore, lower
from regard.core.request import Request
from regard.paths.additive import KernelScore, with_kernel
from regard.paths.reference import context

OPAQUE = 4
"""A score nobody can look into may hold rows × N × D: it gets a larger block with fewer rows."""


def blockwise(request: Request) -> Tensor:
    """Scores → map → weighted sum, a block of queries at a time, (..., M, Dv)."""
    request = with_kernel(lower(request.cleaned()))

    def block(query: Tensor, bias: Tensor | None, rows: slice) -> Tensor:
        scores = request.scores(query, bias)
        weights = request.dropped(request.weights(scores, rows), rows)
        return context(weights, request.value)

    return by_rows(block, request.query, request.bias, **row_elements(request))


def row_elements(request: Request) -> dict[str, int]:
    """What one row of a lowered request needs, and what a block of them may need."""
    elements = request.leading.numel() * request.keys
    if isinstance(request.score, DotScore | KernelScore):
        return {"elements": elements}
    width = max(request.query.shape[-1], 1)
    return {"elements": elements * width, "budget": OPAQUE * blocks.BLOCK_ELEMENTS}
