"""Feature-wise (multi-dimensional) attention without M × N × D: a distribution for every feature.

On the CPU compiled loops run, elsewhere and without numba their torch version. Both are torch
operators with first and second derivatives.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import Tensor

from regard.system.process import limit_threads_after_fork

from . import featurewise_torch
from .arguments import End, check_intervals, check_shape, needs_no_op, promote_half
from .compile import available
from .custom_operator import register

LARGEST_SCALE = 80  # e^80 is finite in float32; above it the maximum must be subtracted


def implementation(tensor: Tensor, scale: float) -> ModuleType:
    """The compiled loops where they can run, else their torch version."""
    if available(tensor) and 0 < scale <= LARGEST_SCALE:
        from . import featurewise_compiled

        return featurewise_compiled
    limit_threads_after_fork()
    return featurewise_torch


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
    run: Callable[..., tuple[Tensor, Tensor]] = attention if needs_no_op(tensors) else attention_op
    return run(*tensors, float(scale), low, high)[0].to(dtype)


def attention(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Context, and Σ_j eˢ for backward, both (B, M, D)."""
    return implementation(inputs[0], inputs[3]).attention(*inputs)


attention_op = register(
    "feature_attention",
    "(Tensor query, Tensor key, Tensor value, float scale, Tensor? low, Tensor? high)"
    " -> (Tensor, Tensor)",
    attention,
    lambda grad, *inputs: implementation(grad, inputs[3]).attention_backward(grad, *inputs),
    featurewise_torch.attention_second,
    fake=lambda query, *_: (query.new_empty(query.shape), query.new_empty(query.shape)),
    gradients=3,
    saved=[0, 1],
)
