"""Which heads do the same."""

import math

import torch
from torch import Tensor

from regard.analysis.rows import checked


def similarity(weights: Tensor) -> Tensor:
    """How alike heads are: 1 − JS(a ‖ b) / ln 2, averaged over the queries.

    The Jensen–Shannon divergence between the rows of two heads, as Clark et al. 2019, section 6,
    compare them. 1 is the same, 0 has no key in common.

    >>> similarity(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]))
    tensor([[1., 0., 1.],
            [0., 1., 0.],
            [1., 0., 1.]], dtype=torch.float64)

    Args:
        weights: (heads, M, N), of one layer or of several with the same queries and keys

    Returns: (heads, heads)
    """
    if weights.dim() != 3:
        raise ValueError(f"weights should be (heads, M, N), got {tuple(weights.shape)}")
    weights = checked(weights)
    entropy = torch.special.entr(weights).sum(-1)  # (heads, M)
    found = torch.ones(len(weights), len(weights), dtype=torch.float64, device=weights.device)
    for head, own in enumerate(weights):  # one against all: heads² maps never exist at once
        middle = torch.special.entr((own + weights) / 2).sum(-1)  # (heads, M)
        divergence = middle - (entropy[head] + entropy) / 2
        found[head] = 1 - divergence.mean(-1) / math.log(2)
    return found


def redundancy(weights: Tensor) -> Tensor:
    """How much each head is like the head it is most like, see `similarity`.

    >>> redundancy(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]))
    tensor([1., 0., 1.], dtype=torch.float64)

    Args:
        weights: (heads, M, N) with 2 heads or more

    Returns: (heads,), from 0 to 1
    """
    if weights.dim() != 3 or len(weights) < 2:
        raise ValueError(
            f"redundancy compares heads: (2 or more, M, N), got {tuple(weights.shape)}"
        )
    found = similarity(weights)
    return found.fill_diagonal_(-math.inf).amax(-1)
