"""Additive attention (Bahdanau et al. 2015) without M × N × hidden, and without tanh in the loop.

On the CPU compiled loops run, elsewhere and where numba is absent their twin in torch. Both are
torch operators with first and second derivatives.
"""

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor
from torch.library import custom_op

from regard.core.process import limit_threads_after_fork

from . import additive_twin
from .compile import available
from .requests import check_intervals, expect, needs_gradient, plain, raised

KEPT = 1 << 22  # weights of up to this many cells are kept for backward, else computed again


def implementation(tensor: Tensor) -> ModuleType:
    if available(tensor):
        from . import additive_compiled

        return additive_compiled
    limit_threads_after_fork()
    return additive_twin


def additive_scores(
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
) -> Tensor:
    """Score every query and key by w · tanh(q + k). Bahdanau et al. 2015, appendix A.1.2.

    >>> additive_scores(torch.zeros(1, 2, 3), torch.ones(1, 5, 3), torch.ones(3)).shape
    torch.Size([1, 2, 5])

    Args:
        query: projected queries, (B, M, hidden)
        key: projected keys, (B, N, hidden)
        weight: (hidden,)
        low, high: int64, (B or 1, M): query i sees keys low_i … high_i − 1; all if not given

    Returns: scores, (B, M, N), zero in the cells that are not seen
    """
    check(query, key, weight)
    low, high = check_intervals(query, low, high)
    dtype, tensors = raised(query, key, weight)
    run: Callable[..., Tensor] = scores if plain(tensors) else torch.ops.regard.additive_scores
    return run(*tensors, low, high).to(dtype)


def additive_attention(
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    value: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
) -> Tensor:
    """Attend by w · tanh(q + k), without ever holding all scores. Bahdanau et al. 2015, eq. 5–6.

    C_i = Σ_j softmax_j(w · tanh(q_i + k_j)) v_j over the keys that query i sees; zero if none.

    >>> value = torch.arange(5.0).reshape(1, 5, 1)
    >>> additive_attention(torch.zeros(1, 2, 3), torch.ones(1, 5, 3), torch.ones(3), value)
    tensor([[[2.],
             [2.]]])

    Args:
        query: projected queries, (B, M, hidden)
        key: projected keys, (B, N, hidden)
        weight: (hidden,)
        value: (B, N, Dv)
        low, high: int64, (B or 1, M): query i sees keys low_i … high_i − 1; all if not given

    Returns: context, (B, M, Dv)
    """
    check(query, key, weight)
    if value.dim() != 3 or value.shape[:2] != key.shape[:2]:
        expect("value", value, (*key.shape[:2], None))
    low, high = check_intervals(query, low, high)
    dtype, tensors = raised(query, key, weight, value)
    keep = needs_gradient(tensors) and query.shape[0] * query.shape[1] * key.shape[1] <= KEPT
    run: Callable[..., tuple[Tensor, Tensor]] = (
        attention if plain(tensors) else torch.ops.regard.additive_attention
    )
    return run(*tensors, low, high, keep)[0].to(dtype)


def check(query: Tensor, key: Tensor, weight: Tensor) -> None:
    good = query.dim() == key.dim() == 3 and key.shape[::2] == query.shape[::2]
    if not good or weight.shape != query.shape[2:]:
        expect("query", query, (None, None, None))
        expect("key", key, (query.shape[0], None, query.shape[2]))
        expect("weight", weight, (query.shape[2],))


def scores(
    query: Tensor, key: Tensor, weight: Tensor, low: Tensor | None, high: Tensor | None
) -> Tensor:
    return implementation(query).scores(query, key, weight, low, high)


scores_op = custom_op("regard::additive_scores", scores, mutates_args=())


@scores_op.register_fake
def _(query, key, weight, low, high):
    return query.new_empty(query.shape[0], query.shape[1], key.shape[1])


@custom_op("regard::additive_scores_backward", mutates_args=())
def scores_backward_op(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    low: Tensor | None,
    high: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    return implementation(query).scores_backward(grad, query, key, weight, low, high)


@scores_backward_op.register_fake
def _(grad, query, key, weight, low, high):
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, weight))


def attention(
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    value: Tensor,
    low: Tensor | None,
    high: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Context, and the weights if they are kept: then backward need not compute them again."""
    return implementation(query).attention(query, key, weight, value, low, high, keep)


attention_op = custom_op("regard::additive_attention", attention, mutates_args=())


@attention_op.register_fake
def _(query, key, weight, value, low, high, keep):
    batch, queries, _ = query.shape
    weights = query.new_empty(batch, queries, key.shape[1] if keep else 0)
    return query.new_empty(batch, queries, value.shape[2]), weights


@custom_op("regard::additive_attention_backward", mutates_args=())
def attention_backward_op(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    value: Tensor,
    weights: Tensor,
    low: Tensor | None,
    high: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return implementation(query).attention_backward(
        grad, query, key, weight, value, weights, low, high
    )


@attention_backward_op.register_fake
def _(grad, query, key, weight, value, weights, low, high):
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, weight, value))


def save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def save_with_weights(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:-1], output[1])


def differentiate_scores(ctx, grad):
    query, key, weight, low, high = ctx.saved_tensors
    found = torch.ops.regard.additive_scores_backward(grad, query, key, weight, low, high)
    return *found, None, None


def differentiate_scores_backward(ctx, *cotangents):
    return *additive_twin.scores_second(cotangents, *ctx.saved_tensors), None, None


def differentiate_attention(ctx, grad, _):
    if grad is None:
        return (None,) * 7
    query, key, weight, value, low, high, weights = ctx.saved_tensors
    found = torch.ops.regard.additive_attention_backward(
        grad, query, key, weight, value, weights, low, high
    )
    return *found, None, None, None


def differentiate_attention_backward(ctx, *cotangents):
    grad, query, key, weight, value, _, low, high = ctx.saved_tensors
    found = additive_twin.attention_second(cotangents, grad, query, key, weight, value, low, high)
    return *found, None, None, None


scores_op.register_autograd(differentiate_scores, setup_context=save_inputs)
scores_backward_op.register_autograd(differentiate_scores_backward, setup_context=save_inputs)
attention_op.register_autograd(differentiate_attention, setup_context=save_with_weights)
attention_backward_op.register_autograd(differentiate_attention_backward, setup_context=save_inputs)
