"""The most likely tokens of each entry, and what their probabilities are divided by."""

import torch
from torch import Tensor


def top_logits(
    logits: Tensor, banned: Tensor, count: int, *, columns: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest logits of each row in descending order, their columns, and log Σ exp.

    >>> logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    >>> best, tokens, log_sum = top_logits(logits.clone(), torch.tensor([1]), 2)
    >>> tokens.tolist(), torch.allclose(log_sum, logits.double().logsumexp(1))
    ([[3, 2]], True)

    Args:
        logits: (R, V), contiguous, on the CPU, overwritten
        banned: tokens that are not among the best, though they count in the sum, (n,)
        count: how many, at most V
        columns: R, if the logits are (V, C) instead, with C ≥ R a multiple of 16

    Returns: (R, count), (R, count) and, in float64, (R,)
    """
    from .loops import top

    rows = len(logits) if columns is None else columns
    best = logits.new_empty(rows, count)
    tokens = torch.empty(rows, count, dtype=torch.int64)
    log_sum = torch.empty(rows, dtype=torch.float64)
    arrays = (t.numpy() for t in (logits, banned, best, tokens, log_sum))
    (top.top if columns is None else top.top_by_columns)(logits.numel(), *arrays)
    return best, tokens, log_sum
