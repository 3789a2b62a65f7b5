"""Additive attention (Bahdanau et al. 2015) without M × N × hidden, and without tanh in the loop.

Compiled loops on the CPU, as torch operators; where they cannot run, the formula in blocks of
queries.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.core.blocks import by_rows
from regard.core.normalize import softmax
from regard.core.score import additive

from .arguments import (
    End,
    as_column,
    check_intervals,
    check_shape,
    needs_gradient,
    needs_no_op,
    promote_half,
    shown_keys,
)
from .compile import available
from .custom_operator import later, register

KEPT = 1 << 22  # weights of up to this many cells are kept for backward, else recomputed


def additive_scores(
    query: Tensor, key: Tensor, weight: Tensor, low: End = None, high: End = None
) -> Tensor:
    """Score every query and key by w · tanh(q + k). Bahdanau et al. 2015, appendix A.1.2.

    >>> import torch
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
    dtype, tensors = promote_half(query, key, weight)
    if not available(query):
        q, k, w = tensors
        return scores_formula(q, k, w, low, high).to(dtype)
    run: Callable[..., Tensor] = scores if needs_no_op(tensors) else scores_op
    return run(*tensors, low, high).to(dtype)


def additive_attention(
    query: Tensor, key: Tensor, weight: Tensor, value: Tensor, low: End = None, high: End = None
) -> Tensor:
    """Attend by w · tanh(q + k), without ever holding all scores. Bahdanau et al. 2015, eq. 5–6.

    C_i = Σ_j softmax_j(w · tanh(q_i + k_j)) v_j over the keys that query i sees; zero if none.

    >>> import torch
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
        check_shape("value", value, (*key.shape[:2], None))
    low, high = check_intervals(query, low, high)
    dtype, tensors = promote_half(query, key, weight, value)
    if not available(query):
        q, k, w, v = tensors
        return attention_formula(q, k, w, v, low, high).to(dtype)
    keep = needs_gradient(tensors) and query.shape[0] * query.shape[1] * key.shape[1] <= KEPT
    run: Callable[..., tuple[Tensor, Tensor]] = attention if needs_no_op(tensors) else attention_op
    return run(*tensors, low, high, keep)[0].to(dtype)


def check(query: Tensor, key: Tensor, weight: Tensor) -> None:
    good = query.dim() == key.dim() == 3 and key.shape[::2] == query.shape[::2]
    if not good or weight.shape != query.shape[2:]:
        check_shape("query", query, (None, None, None))
        check_shape("key", key, (query.shape[0], None, query.shape[2]))
        check_shape("weight", weight, (query.shape[2],))


def scores_formula(query: Tensor, key: Tensor, weight: Tensor, low: End, high: End) -> Tensor:
    scores = additive(query, key, weight)
    shown = shown_keys(as_column(low), as_column(high), key.shape[1])
    return scores if shown is None else torch.where(shown, scores, 0.0)


def attention_formula(
    query: Tensor, key: Tensor, weight: Tensor, value: Tensor, low: End, high: End, *_: Any
) -> Tensor:
    def rows(query: Tensor, low: End, high: End, _: slice) -> Tensor:
        return softmax(additive(query, key, weight), shown_keys(low, high, key.shape[1])) @ value

    ends = as_column(low), as_column(high)
    return by_rows(rows, query, *ends, elements=key.numel())


def fake_attention(query, key, weight, value, low, high, keep):
    batch, queries, _ = query.shape
    weights = query.new_empty(batch, queries, key.shape[1] if keep else 0)
    return query.new_empty(batch, queries, value.shape[2]), weights


scores, scores_backward, attention, attention_backward = (
    later("additive_compiled", name)
    for name in ("scores", "scores_backward", "attention", "attention_backward")
)
scores_op = register(
    "additive_scores",
    "(Tensor query, Tensor key, Tensor weight, Tensor? low, Tensor? high) -> Tensor",
    scores,
    scores_backward,
    scores_formula,
    fake=lambda query, key, *_: query.new_empty(*query.shape[:2], key.shape[1]),
    gradients=3,
)
attention_op = register(
    "additive_attention",
    "(Tensor query, Tensor key, Tensor weight, Tensor value, Tensor? low, Tensor? high, bool keep)"
    " -> (Tensor, Tensor)",
    attention,
    attention_backward,
    attention_formula,
    fake=fake_attention,
    gradients=4,
    saved=[1],
)
