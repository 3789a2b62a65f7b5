"""The second textbook half of attention: the context C = W · V."""

from torch import Tensor


def weighted_sum(weights: Tensor, value: Tensor) -> Tensor:
    """The values, averaged by attention: C = W · V.

    With one row of weights it is the context of one decoder step; with a row for every step it
    is the context of all of them at once, which textbooks call time attention.

    >>> import torch
    >>> weighted_sum(torch.tensor([[0.25, 0.75]]), torch.tensor([[4.0], [8.0]]))
    tensor([[7.]])

    Args:
        weights: (..., M, N)
        value: (..., N, Dv)

    Returns: context, (..., M, Dv)
    """
    if weights.shape[-1] != value.shape[-2]:
        raise ValueError(
            f"weights {tuple(weights.shape)} are for {weights.shape[-1]} values, but value "
            f"{tuple(value.shape)} has {value.shape[-2]}; value should be (..., N, Dv)"
        )
    return weights.to(value.dtype) @ value
