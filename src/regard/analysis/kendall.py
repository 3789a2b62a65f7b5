"""Whether two lists of numbers are in the same order."""

import math

import torch
from torch import Tensor


def kendall(a: Tensor, b: Tensor) -> float:
    """Kendall's τ-b: 1 for the same order, −1 for the opposite one, 0 for no relation.

        τ = (concordant − discordant) / √((pairs − ties in a)(pairs − ties in b))

    Kendall 1945. NaN if one of them is all ties, or there are fewer than two numbers.

    >>> kendall(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0]))
    0.3333333333333333

    Args:
        a, b: (n,)
    """
    if a.shape != b.shape or a.dim() != 1:
        raise ValueError(
            f"kendall compares two lists of one length, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    first, second = (x.detach().to(torch.float64) for x in (a, b))
    signs_a = (first[:, None] - first).sign()  # (n, n), each pair twice
    signs_b = (second[:, None] - second).sign()
    agreement = float((signs_a * signs_b).sum())
    untied = float(signs_a.abs().sum()) * float(signs_b.abs().sum())
    return agreement / math.sqrt(untied) if untied else math.nan
