"""Padding as people have it, lengths or booleans, for layers that attend to whole sequences."""

import torch
from torch import Tensor

from regard.core.mask import Grid, Mask, lengths
from regard.core.mask.padding import Padding


def padding(real: Mask | Tensor | None, x: Tensor, name: str = "mask") -> Mask | None:
    """Which positions of x are real, as a mask that hides the others.

    >>> padding(torch.tensor([1, 3]), torch.zeros(2, 3, 5)).dense(1, 3).int()
    tensor([[[1, 0, 0]],
    <BLANKLINE>
            [[1, 1, 1]]], dtype=torch.int32)

    Args:
        real: how many positions are real, whole numbers (...,); or which, bool (..., L) with
            True = real; or a Mask that is the same for all queries
        x: (..., L, dim)
        name: of `real`, for errors
    """
    if real is None or isinstance(real, Mask):
        return real
    if not isinstance(real, Tensor) or real.is_floating_point():
        kind = real.dtype if isinstance(real, Tensor) else type(real).__name__
        raise TypeError(
            f"{name} should be bool, True = real, or whole numbers, how many are real; got {kind}"
        )
    boolean = real.dtype == torch.bool
    shape = x.shape[:-1] if boolean else x.shape[:-2]
    if real.shape != shape:
        meaning = "which positions are real" if boolean else "how many positions are real"
        raise ValueError(
            f"{name} says {meaning} and should be {tuple(shape)} for an input of shape "
            f"{tuple(x.shape)}, got {tuple(real.shape)}"
        )
    return Padding(real) if boolean else lengths(real)


def without_padding(x: Tensor, mask: Mask | None) -> Tensor:
    """x (..., L, dim) with zeros where nothing is real.

    Whatever the padding holds, NaN included, then reaches no output and no gradient.
    """
    if mask is None:
        return x
    grid = Grid(1, x.shape[-2], x.dim() - 2, x.device)
    mask.check(grid)
    seen = mask.seen(grid)  # (..., L)
    if any(
        own not in (1, size) for own, size in zip(seen.shape[::-1], x.shape[-2::-1], strict=False)
    ):
        raise ValueError(
            f"{mask} is for sequences {tuple(seen.shape)} and does not fit {tuple(x.shape)}"
        )
    return torch.where(seen.unsqueeze(-1), x, 0.0)
