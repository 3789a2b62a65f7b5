"""Feature-wise (multi-dimensional) attention without M × N × D: a distribution for every feature.

Compiled loops on the CPU, as a torch operator; where they cannot run, the formula in blocks of
queries.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core.blocks import by_rows
from regard.core.normalize import softmax

from .arguments import (
    End,
    as_column,
    check_intervals,
    check_shape,
    needs_no_op,
    promote_half,
    shown_keys,
)
from .compile import available
from .custom_operator import later, register

LARGEST_SCALE = 80  # e^80 is finite in float32; above it the maximum must be subtracted


def feature_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float = 1.0, low: End = None, high: End = None
) -> Tensor:
    """Attend in every feature separately, with scores c·tanh((q + k)/c). Shen et al. 2018, DiSAN.

    C_id = Σ_j softmax_j(c·tanh((q_id + k_jd)/c)) v_jd over the keys that query i sees, or zero.
    The paper's eq. 15 with the projections already made, and c = 5.

    >>> import torch
    >>> value = torch.arange(5.0).reshape(1, 5, 1)
    >>> feature_attention(torch.zeros(1, 2, 1), torch.ones(1, 5, 1), value).round(decimals=3)
    tensor([[[2.],
             [2.]]])

    Args:
        query: (B, M, D)
        key: (B, N, D)
        value: (B, N, D)
        scale: c, the largest score
        low, high: int64, (B or 1, M): query i sees keys low_i … high_i − 1; all if not given

    Returns: context, (B, M, D)
    """
    if query.dim() != 3 or key.shape[::2] != query.shape[::2] or value.shape != key.shape:
        check_shape("query", query, (None, None, None))
        check_shape("key", key, (query.shape[0], None, query.shape[2]))
        check_shape("value", value, key.shape)
    if not scale > 0:
        raise ValueError(f"scale is the largest score and must be positive, but is {scale}")
    low, high = check_intervals(query, low, high)
    dtype, tensors = promote_half(query, key, value)
    if not available(query) or scale > LARGEST_SCALE:
        q, k, v = tensors
        return formula(q, k, v, float(scale), low, high).to(dtype)
    run: Callable[..., tuple[Tensor, Tensor]] = attention if needs_no_op(tensors) else attention_op
    return run(*tensors, float(scale), low, high)[0].to(dtype)


def formula(query: Tensor, key: Tensor, value: Tensor, scale: float, low: End, high: End) -> Tensor:
    def rows(query: Tensor, low: End, high: End, _: slice) -> Tensor:
        q, k, v = query.unsqueeze(-1), key.mT.unsqueeze(1), value.mT.unsqueeze(1)
        scores = scale * torch.tanh((q + k) / scale)  # (B, rows, D, N)
        shown = shown_keys(low, high, key.shape[1])
        return (softmax(scores, None if shown is None else shown.unsqueeze(-2)) * v).sum(-1)

    ends = as_column(low), as_column(high)
    return by_rows(rows, query, *ends, elements=key.numel())


attention, attention_backward = (
    later("featurewise_compiled", name) for name in ("attention", "attention_backward")
)
attention_op = register(
    "feature_attention",
    "(Tensor query, Tensor key, Tensor value, float scale, Tensor? low, Tensor? high)"
    " -> (Tensor, Tensor)",
    attention,
    attention_backward,
    formula,
    fake=lambda query, *_: (query.new_empty(query.shape), query.new_empty(query.shape)),
    gradients=3,
    saved=[0, 1],
)
