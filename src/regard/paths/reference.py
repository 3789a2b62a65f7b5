"""The reference path: the formula of attention, computed at once.

    ATTN(Q, K, V) = normalize[ score(Q, K) + mask ] · V

Every other path must give what this one gives.
"""

from torch import Tensor

from regard.core.request import Request
from regard.core.weighted_sum import weighted_sum


def reference(request: Request) -> Tensor:
    """Scores → map → weighted sum, (..., M, Dv)."""
    scores = request.scores(request.query, request.bias)
    return context(request, scores, request.rows)


def context(request: Request, scores: Tensor, rows: slice) -> Tensor:
    """The outputs of some rows from their scores, in the dtype of the values, (..., rows, Dv)."""
    weights = request.apply_dropout(request.weights(scores, rows), rows)
    return weighted_sum(weights, request.value.to(weights.dtype)).to(request.value.dtype)
