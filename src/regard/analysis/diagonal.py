"""Whether attention goes along: on the diagonal, or to a neighbour."""

import torch
from torch import Tensor

from regard.analysis.rows import checked, over_rows


def diagonality(weights: Tensor) -> Tensor:
    """How near to the diagonal the weights are: 1 on it, 0 as far as uniform attention.

        1 − Σᵢⱼ wᵢⱼ dᵢⱼ / Σᵢⱼ (1/N) dᵢⱼ,  dᵢⱼ = |(i + ½) / M − (j + ½) / N|

    It is below 0 where attention is farther away than chance. M and N may differ: the diagonal
    goes from corner to corner.

    >>> diagonality(torch.eye(3)), diagonality(torch.full((2, 4), 0.25))
    (tensor(1., dtype=torch.float64), tensor(0., dtype=torch.float64))

    Args:
        weights: (..., M, N)

    Returns: (...)
    """
    weights = checked(weights)
    M, N = weights.shape[-2:]
    row = (torch.arange(M, dtype=torch.float64, device=weights.device) + 0.5) / max(M, 1)
    column = (torch.arange(N, dtype=torch.float64, device=weights.device) + 0.5) / max(N, 1)
    distance = (row[:, None] - column).abs()  # (M, N)
    chance = over_rows(distance.mean(-1).expand(weights.shape[:-1]), weights)
    away = over_rows((weights * distance).sum(-1), weights)
    return torch.where(chance > 0, 1 - away / chance.clamp(min=1e-12), torch.ones_like(away))


def offset_share(weights: Tensor, offset: int) -> Tensor:
    """The mean weight of the key `offset` places after the query's own, among those that have one.

    −1 is the previous token, 0 the query's own, 1 the next. For self-attention, or keys in step
    with the queries.

    >>> offset_share(torch.tensor([[1.0, 0.0], [0.9, 0.1]]), -1)
    tensor(0.9000, dtype=torch.float64)

    Args:
        weights: (..., M, N)

    Returns: (...), from 0 to 1
    """
    weights = checked(weights)
    M, N = weights.shape[-2:]
    rows = range(max(0, -offset), min(M, N - offset))
    if not rows:
        return weights.new_zeros(weights.shape[:-2])
    some = weights[..., rows.start : rows.stop, :]
    return over_rows(weights.diagonal(offset, -2, -1), some)


def previous_share(weights: Tensor) -> Tensor:
    """The mean weight of the token before, see `offset_share`."""
    return offset_share(weights, -1)


def next_share(weights: Tensor) -> Tensor:
    """The mean weight of the token after, see `offset_share`."""
    return offset_share(weights, 1)
