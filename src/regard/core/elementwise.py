"""A function of each score: any score function can be changed elementwise."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from regard.core.names import find_score
from regard.core.score import Score


class Elementwise(nn.Module):
    """g(f(q, k)): a function of each score, before bias and mask.

    >>> import regard
    >>> q, k = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [-3.0, 1.0]])
    >>> Elementwise(torch.relu, "dot")(q, k)
    tensor([[2., 0.]])

    Args:
        function: from a tensor of scores to one of the same shape, each entry on its own;
            differentiable; a module keeps its parameters
        score: a name, a module, or any callable (query, key) -> scores
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], score: str | Score = "scaled_dot"
    ) -> None:
        super().__init__()
        if not callable(function):
            raise TypeError(f"function must be callable, got {type(function).__name__}")
        self.function = function
        self.score = find_score(score)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.function(self.score(query, key))


class SoftCap(Elementwise):
    """c · tanh(f(q, k) / c): scores between −c and c. Gemma Team 2024 (Gemma 2), section 2.

    Bello et al. 2016, eq. 16, are first to bound the scores of an attention so. A soft-capped dot
    product runs at the speed of the fused path on the CPU.

    >>> SoftCap(2.0, "dot")(torch.ones(1, 1), torch.tensor([[0.1], [100.0]]))
    tensor([[0.0999, 2.0000]])

    Args:
        cap: c, above zero; 50 in Gemma 2
        score: a name, a module, or any callable (query, key) -> scores
    """

    def __init__(self, cap: float, score: str | Score = "scaled_dot") -> None:
        if not 0 < cap < float("inf"):
            raise ValueError(f"cap must be above 0 and finite, got {cap}")
        super().__init__(partial(softcap, cap=cap), score)
        self.cap = cap

    def extra_repr(self) -> str:
        return str(self.cap)


def softcap(scores: Tensor, cap: float) -> Tensor:
    """c · tanh(s / c)"""
    return cap * torch.tanh(scores / cap)
