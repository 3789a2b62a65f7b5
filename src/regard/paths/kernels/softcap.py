"""e^(c·tanh x) and its gradient, in place: compiled, or by torch where numba is absent.

Tensors are contiguous, and the buffers that hold them have room for one vector behind them.
"""

from torch import Tensor

from .compile import available

ROOM = 16  # elements of a vector, at most


def exponentials_(scores: Tensor, cap: float) -> None:
    """x → e^(c·tanh x)

    >>> import torch
    >>> x = torch.zeros(2 + ROOM)[:2]
    >>> exponentials_(x, 3.0)
    >>> x
    tensor([1., 1.])
    """
    if available(scores):
        from .loops import softcap

        softcap.exponentials(scores.numel(), scores.view(-1).numpy(), cap)
    else:
        scores.tanh_().mul_(cap).exp_()


def gradients_(scores: Tensor, slopes: Tensor, cap: float) -> None:
    """The same, and in the other tensor d → d · e^(c·tanh x) · tanh' x."""
    if available(scores):
        from .loops import softcap

        arrays = scores.view(-1).numpy(), slopes.view(-1).numpy()
        softcap.gradients(scores.numel(), *arrays, cap)
    else:
        t = scores.tanh_()
        slopes.mul_(1 - t * t)
        slopes.mul_(t.mul_(cap).exp_())
