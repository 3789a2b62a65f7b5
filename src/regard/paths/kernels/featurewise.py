"""Feature-wise (multi-dimensional) attention without M × N × D: a distribution for every feature.

On the CPU compiled loops run, elsewhere and where numba is absent their twin in torch. Both are
torch operators with first and second derivatives.
"""

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor
from torch.library import custom_op

from regard.core.process import limit_threads_after_fork

from . import featurewise_twin
from .compile import available
from .requests import check_intervals, expect, plain, raised

LARGEST_SCALE = (
    80  # e^80 is finite in float32; beyond it only the twin, which subtracts the maximum
)


def implementation(tensor: Tensor, scale: float) -> ModuleType:
    if available(tensor) and 0 < scale <= LARGEST_SCALE:
        from . import featurewise_compiled

        return featurewise_compiled
    limit_threads_after_fork()
    return featurewise_twin


def feature_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float = 1.0,
    low: Tensor | None = None,
    high: Tensor | None = None,
) -> Tensor:
    """Attend in every feature by itself, with scores c·tanh((q + k)/c). Shen et al. 2018, DiSAN.

    C_id = Σ_j softmax_j(c·tanh((q_id + k_jd)/c)) v_jd over the keys that query i sees, or zero.
    The paper's eq. 15 with the projections already made, and c = 5.

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
        expect("query", query, (None, None, None))
        expect("key", key, (query.shape[0], None, query.shape[2]))
        expect("value", value, key.shape)
    if not scale > 0:
        raise ValueError(f"scale bounds the scores and must be positive, but is {scale}")
    low, high = check_intervals(query, low, high)
    dtype, tensors = raised(query, key, value)
    run: Callable[..., tuple[Tensor, Tensor]] = (
        attention if plain(tensors) else torch.ops.regard.feature_attention
    )
    return run(*tensors, float(scale), low, high)[0].to(dtype)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    low: Tensor | None,
    high: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Context, and Σ_j eˢ for backward, both (B, M, D)."""
    return implementation(query, scale).attention(query, key, value, scale, low, high)


attention_op = custom_op("regard::feature_attention", attention, mutates_args=())


@attention_op.register_fake
def _(query, key, value, scale, low, high):
    return query.new_empty(query.shape), query.new_empty(query.shape)


@custom_op("regard::feature_attention_backward", mutates_args=())
def attention_backward_op(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    mass: Tensor,
    scale: float,
    low: Tensor | None,
    high: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    return implementation(query, scale).attention_backward(
        grad, query, key, value, out, mass, scale, low, high
    )


@attention_backward_op.register_fake
def _(grad, query, key, value, out, mass, scale, low, high):
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, value))


def save_attention(ctx, inputs, output):
    query, key, value, ctx.scale, low, high = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, key, value, *output, low, high)


def differentiate_attention(ctx, grad, _):
    if grad is None:
        return (None,) * 6
    *tensors, low, high = ctx.saved_tensors
    found = torch.ops.regard.feature_attention_backward(grad, *tensors, ctx.scale, low, high)
    return *found, None, None, None


def save_backward(ctx, inputs, output):
    grad, query, key, value, _, _, ctx.scale, low, high = inputs
    ctx.save_for_backward(grad, query, key, value, low, high)


def differentiate_attention_backward(ctx, *cotangents):
    grad, query, key, value, low, high = ctx.saved_tensors
    found = featurewise_twin.attention_second(
        cotangents, grad, query, key, value, ctx.scale, low, high
    )
    return *found, None, None, None, None, None


attention_op.register_autograd(differentiate_attention, setup_context=save_attention)
attention_backward_op.register_autograd(
    differentiate_attention_backward, setup_context=save_backward
)
