"""How a context joins the decoder's state on the way to the output."""

import torch
from torch import Tensor, nn


class Attentional(nn.Module):
    """h̃ = tanh(W [c ; h]). Luong et al. 2015, eq. 5.

    >>> Attentional(3, 5)(torch.zeros(2, 3), torch.zeros(2, 5)).shape
    torch.Size([2, 5])

    Args:
        context_dim: width of the context c
        hidden: width of the state h, and of the result
    """

    def __init__(self, context_dim: int, hidden: int) -> None:
        super().__init__()
        self.projection = nn.Linear(context_dim + hidden, hidden, bias=False)
        self.width = hidden

    def forward(self, context: Tensor, state: Tensor) -> Tensor:
        return torch.tanh(self.projection(torch.cat((context, state), dim=-1)))


class Concatenation(nn.Module):
    """[c ; h], for an output that does the rest.

    >>> Concatenation(3, 5)(torch.zeros(2, 3), torch.zeros(2, 5)).shape
    torch.Size([2, 8])
    """

    def __init__(self, context_dim: int, hidden: int) -> None:
        super().__init__()
        self.width = context_dim + hidden

    def forward(self, context: Tensor, state: Tensor) -> Tensor:
        return torch.cat((context, state), dim=-1)


class Maxout(nn.Module):
    """The deep output t = max of pairs of W [s ; e ; c] + b. Bahdanau et al. 2015, A.2.2.

    >>> Maxout(3 + 5 + 7, 11)(torch.zeros(2, 3), torch.zeros(2, 5), torch.zeros(2, 7)).shape
    torch.Size([2, 11])

    Args:
        dim: width of all inputs together
        width: of the result
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(dim, 2 * width)
        self.width = width

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.projection(torch.cat(inputs, dim=-1)).unflatten(-1, (-1, 2)).max(-1).values


Join = Attentional | Concatenation

JOINS: dict[str, type[Join]] = {"tanh": Attentional, "concatenate": Concatenation}
"""How Luong's context joins the output, by name."""
