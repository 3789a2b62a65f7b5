"""The reference path: attention as the formula says, all of it at once.

    ATTN(Q, K, V) = normalize[ score(Q, K) + mask ] · V

Every other path must give what this one gives.
"""

from torch import Tensor

from regard.core.request import Request
from regard.core.weighted_sum import weighted_sum


def reference(request: Request) -> Tensor:
    """Scores → map → weighted sum, (..., M, Dv)."""
    request = request.zero_hidden()
    scores = request.scores(request.query, request.bias)
    weights = request.weights(scores, request.rows)
    weights = request.apply_dropout(weights, request.rows)
    return context(weights, request.value)


def context(weights: Tensor, value: Tensor) -> Tensor:
    """Weights in float32 or better, times values, in the dtype of the values."""
    return weighted_sum(weights, value.to(weights.dtype)).to(value.dtype)
