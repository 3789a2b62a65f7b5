"""How spread out attention is."""

import torch
from torch import Tensor

from regard.analysis.rows import checked, over_rows


def entropy(weights: Tensor) -> Tensor:
    """The mean entropy of the rows, −Σ w ln w, in nats.

    0 looks at one key; ln N looks at all N alike; e^entropy is about how many keys are looked at.

    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor(0.3466, dtype=torch.float64)

    Args:
        weights: (..., M, N)

    Returns: (...)
    """
    weights = checked(weights)
    return over_rows(torch.special.entr(weights).sum(-1), weights)
