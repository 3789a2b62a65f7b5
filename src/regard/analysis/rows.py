"""Averages over the rows of a map, of those that attend to anything."""

import torch
from torch import Tensor


def checked(weights: Tensor) -> Tensor:
    """The weights in double precision, (..., M, N); raise unless they are attention.

    Raises:
        ValueError: NaN, a negative weight, or rows that sum to more than one
    """
    if weights.dim() < 2:
        raise ValueError(f"weights should be (..., M, N), got {tuple(weights.shape)}")
    weights = weights.detach().to(torch.float64)
    if not bool(torch.isfinite(weights).all()):
        raise ValueError("weights have NaN or infinity in them")
    if weights.numel() and (float(weights.min()) < -1e-3 or float(weights.sum(-1).max()) > 1.05):
        raise ValueError(
            f"weights should be from 0 and each row sum to 1 at most, the smallest is "
            f"{float(weights.min()):.3g}, the largest sum {float(weights.sum(-1).max()):.3g}"
        )
    return weights.clamp(min=0.0)


def over_rows(values: Tensor, weights: Tensor) -> Tensor:
    """The mean of one number per query, (..., M), over the queries that attend to anything.

    >>> weights = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    >>> over_rows(torch.tensor([3.0, 100.0]), weights)
    tensor(3.)

    Args:
        values: (..., M)
        weights: (..., M, N)

    Returns: (...), zero where no query attends to anything
    """
    real = (weights.sum(-1) > 0).to(values.dtype)
    return (values * real).sum(-1) / real.sum(-1).clamp(min=1.0)
