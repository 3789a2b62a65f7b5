"""The position-wise half of a Transformer layer."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.layers.dropout import check_dropout, drop


class FeedForward(nn.Module):
    """Two linear maps with a nonlinearity between, the same at every position.

        FFN(x) = max(0, x W₁ + b₁) W₂ + b₂

    Vaswani et al. 2017, eq. 2. Dropout, if any, falls on the hidden units.

    >>> FeedForward(5, 11)(torch.zeros(2, 3, 5)).shape
    torch.Size([2, 3, 5])

    Args:
        dim: width of input and output
        hidden: width between, 4 · dim in the paper
        activation: any function or module of a tensor, element by element
        dropout: probability of dropping a hidden unit in train mode
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if dim < 1 or hidden < 1:
            raise ValueError(f"dim and hidden must be 1 or more, got {dim} and {hidden}")
        check_dropout(dropout)
        self.inner = nn.Linear(dim, hidden)
        self.outer = nn.Linear(hidden, dim)
        self.activation = activation
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """x (..., dim) to (..., dim)."""
        hidden = self.activation(self.inner(x))  # (..., hidden)
        return self.outer(drop(hidden, self.dropout, self.training))
