"""The attention of torch itself, reported while somebody watches.

`F.scaled_dot_product_attention` and what `nn.MultiheadAttention` and `nn.TransformerEncoderLayer`
call are replaced by functions that call them, unchanged, and then tell of it. Hooks would not do:
where a module has one, torch leaves its fast path, and the numbers change.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.attend import map_of
from regard.attention.observer import AttentionCall, notify, observers
from regard.core.lower import DotScore
from regard.core.mask import Mask, causal, visible
from regard.core.normalize import softmax
from regard.core.request import Request, make_request
from regard.trace.adapters import multi_head

INSIDE = ("torch.nn.functional", "regard.paths")
"""Callers that compute a call which is reported as a whole."""

_lock = Lock()
_users = 0
_originals: dict[tuple[Any, str], Callable] = {}


def sdpa(
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionCall:
    """What a call of `F.scaled_dot_product_attention` was."""
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1

    def request() -> Request:
        q, k, v, mask, bias = query, key, value, None, None
        if attn_mask is not None:
            whole = attn_mask if attn_mask.dim() > 1 else attn_mask[None]
            mask, bias = (whole, None) if whole.dtype == torch.bool else (None, whole)
        if groups > 1:  # (..., heads, M, D) to (..., key heads, group, M, D)
            q, k, v = q.unflatten(-3, (-1, groups)), k.unsqueeze(-3), v.unsqueeze(-3)
            mask, bias = (_grouped(each, key.shape[-3]) for each in (mask, bias))
        seen: Mask | None = None if mask is None else visible(mask)
        if is_causal:
            seen = causal(offset=0) if seen is None else seen & causal(offset=0)
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        score = DotScore(factor)
        return make_request(
            q, k, v, score=score, mask=seen, bias=bias, normalize=softmax, dropout=0.0
        )

    def combine(request: Request | None, weights: Tensor, _: slice) -> Tensor:
        assert request is not None
        made = weights @ request.value.to(weights.dtype)
        return made.flatten(-4, -3) if groups > 1 else made

    shape = (*output.shape[:-2], query.shape[-2], key.shape[-2])
    tensors = [("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)]
    return AttentionCall(
        value,
        output,
        shape,
        "scaled_dot_product_attention",
        request,
        map_of,  # type: ignore[arg-type]
        None if dropout_p else combine,
        tensors=tuple((name, tensor) for name, tensor in tensors if tensor is not None),
    )


PLACES: dict[tuple[Any, str], Callable[..., AttentionCall]] = {
    (F, "scaled_dot_product_attention"): sdpa,
    (F, "multi_head_attention_forward"): multi_head.forward,
    (torch, "_native_multi_head_attention"): multi_head.native,
    (torch, "_transformer_encoder_layer_fwd"): multi_head.encoder_layer,
}
"""Functions of torch, and what makes a report of what they gave and were given."""


@contextmanager
def reported() -> Iterator[None]:
    """Let torch's attention report its calls until the block ends."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for (place, name), call in _reporting.items():
                _originals[place, name] = getattr(place, name)
                setattr(place, name, call)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for (place, name), original in _originals.items():
                    setattr(place, name, original)


def _reporter(place: Any, name: str) -> Callable:
    report = PLACES[place, name]

    def call(*args: Any, **options: Any) -> Any:
        output = _originals[place, name](*args, **options)
        told = observers()
        if told and not _inside():
            notify(told, report(output, *args, **options))
        return output

    return call


_reporting = {where: _reporter(*where) for where in PLACES}


def _inside() -> bool:
    """Whether the caller's caller computes a part of something that is reported already."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith(INSIDE)


def _grouped(mask: Tensor | None, key_heads: int) -> Tensor | None:
    """A mask over heads as one over (key heads, group)."""
    if mask is None or mask.dim() < 3:
        return mask
    if mask.shape[-3] == 1:
        return mask.unsqueeze(-3)
    return mask.unflatten(-3, (key_heads, -1))
