"""e^(c·tanh x) and its gradient, in place: compiled, or by torch where numba is absent.

Tensors are contiguous, and the buffers that hold them have room for one vector behind them.
"""

import torch
from torch import Tensor

from .compile import available

ROOM = 16  # elements of a vector, at most


def _work(scores: Tensor) -> int:
    """The work that decides on the number of threads.

    Between two of these passes torch multiplies matrices with threads of its own, which then wait
    busily for the next product. With two cores, a second thread here would only wait for them.
    """
    return scores.numel() if torch.get_num_threads() > 2 else 1


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

        softcap.exponentials(_work(scores), scores.view(-1).numpy(), cap)
    else:
        scores.tanh_().mul_(cap).exp_()


def gradients_(scores: Tensor, slopes: Tensor, cap: float) -> None:
    """The same, and in the other tensor d → d · e^(c·tanh x) · tanh' x."""
    if available(scores):
        from .loops import softcap

        arrays = scores.view(-1).numpy(), slopes.view(-1).numpy()
        softcap.gradients(_work(scores), *arrays, cap)
    else:
        t = scores.tanh_()
        slopes.mul_(1 - t * t)
        slopes.mul_(t.mul_(cap).exp_())
