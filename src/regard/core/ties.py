"""Bounds and maxima whose gradients do not depend on what torch chooses at a tie.

Torch 2.14 gives a clamp the gradient 0 at its bound, versions before gave it 1.
"""

from torch import Tensor


def at_least(tensor: Tensor, least: float) -> Tensor:
    """The tensor with `least` for what lies below, NaN as it is. A bound itself has gradient 1.

    >>> import torch
    >>> at_least(torch.tensor([-1.0, 0.0, 2.0]), 0.0)
    tensor([0., 0., 2.])
    """
    return tensor.masked_fill(tensor < least, least)


def largest(tensor: Tensor, dim: int) -> Tensor:
    """The largest entries along a dimension. Of several that are equal the first has a gradient.

    >>> import torch
    >>> largest(torch.tensor([[1.0, 3.0], [5.0, 2.0]]), dim=-1)
    tensor([3., 5.])
    """
    if not tensor.requires_grad:
        return tensor.amax(dim)
    return tensor.gather(dim, tensor.detach().argmax(dim, keepdim=True)).squeeze(dim)


def absolute(tensor: Tensor) -> Tensor:
    """|x|, whose gradient at 0 is 0.

    >>> import torch
    >>> absolute(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([1., 0., 2.])
    """
    return tensor * tensor.detach().sign()
