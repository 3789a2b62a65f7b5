"""Attention calls of the functions behind `nn.MultiheadAttention` and `nn.TransformerEncoderLayer`.

Queries, keys and values are projected again when the map is read.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.dispatch import map_of
from regard.attention.record import CallRecord
from regard.core.mask import Mask, visible
from regard.core.normalize import softmax
from regard.core.request import Request, make_request
from regard.core.score import ScaledDot


def forward(
    output: tuple[Tensor, Tensor | None],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    heads: int,
    in_weight: Tensor | None,
    in_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero: bool,
    dropout: float,
    out_weight: Tensor,
    out_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    **_: Any,
) -> CallRecord:
    """The attention call of a `F.multi_head_attention_forward`, length first: (L, batch, E)."""
    attended = output[0]
    if query.dim() == 2:  # a single sequence
        query, key, value = (each.unsqueeze(1) for each in (query, key, value))
        output = output[0].unsqueeze(1), output[1]
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    extra = (bias_k is not None) + bool(add_zero)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)

    def request() -> Request:
        three = weights if use_separate_proj_weight else _packed(in_weight)
        biases = (None,) * 3 if in_bias is None else in_bias.chunk(3)
        q, k, v = (
            F.linear(x, weight, bias)  # type: ignore[arg-type]
            for x, weight, bias in zip((query, key, value), three, biases, strict=True)
        )
        if bias_k is not None and bias_v is not None:
            k = torch.cat((k, bias_k.expand(1, k.shape[1], -1)))
            v = torch.cat((v, bias_v.expand(1, v.shape[1], -1)))
        if add_zero:
            k, v = (F.pad(x, (0, 0, 0, 0, 0, 1)) for x in (k, v))
        mask, bias = _masks(attn_mask, key_padding_mask, heads, extra)
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        return _request(q, k, v, heads, mask, bias)

    def combine(request: Request | None, weights: Tensor, rows: slice) -> Tensor:
        return _joined(request, weights, rows, out_weight, out_bias)

    shape = (query.shape[1], heads, query.shape[0], key.shape[0] + extra)
    tensors = {"query": query, "key": key, "value": value, "in_proj_weight": in_weight}
    tensors |= {"out_proj": out_weight, "in_proj_bias": in_bias, "q_proj": q_proj_weight}
    tensors |= {"k_proj": k_proj_weight, "v_proj": v_proj_weight}
    drops = training and dropout > 0
    return CallRecord(
        value,
        output[0].transpose(0, 1),
        shape,
        "multi_head_attention_forward",
        request,
        map_of,
        None if drops else combine,
        tensors=_known(tensors),
        layer_inputs=lambda: tuple(x.transpose(0, 1) for x in (query, key, value)),
        result=(attended, lambda gradient: gradient.view_as(output[0]).transpose(0, 1)),
    )


def native(
    output: tuple[Tensor, Tensor | None],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    heads: int,
    in_weight: Tensor,
    in_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: int | None = None,
) -> CallRecord:
    """The attention call of a `torch._native_multi_head_attention`: self-attention, batch first."""

    def request() -> Request:
        q, k, v = F.linear(_padded(query), in_weight, in_bias).chunk(3, dim=-1)
        return _request(q, k, v, heads, _fast_mask(query, mask, mask_type), None)

    def combine(request: Request | None, weights: Tensor, rows: slice) -> Tensor:
        return _real(query, _joined(request, weights, rows, out_weight, out_bias))

    tensors = (("x", query), ("in_proj_weight", in_weight), ("out_proj", out_weight))
    path = "native_multi_head_attention"
    return _fast(query, output[0], heads, path, request, combine, tensors, lambda x: x)


def encoder_layer(
    output: Tensor,
    source: Tensor,
    embed_dim: int,
    heads: int,
    in_weight: Tensor,
    in_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gelu: bool,
    norm_first: bool,
    eps: float,
    *parameters: Any,
) -> CallRecord:
    """The attention call of a `torch._transformer_encoder_layer_fwd`, a whole layer in one call."""
    scale1, shift1, scale2, shift2, up, up_bias, down, down_bias = parameters[:8]
    mask, mask_type = (*parameters[8:], None, None)[:2]

    def norm1(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), scale1, shift1, eps)

    def before(x: Tensor) -> Tensor:
        return norm1(x) if norm_first else x

    def norm2(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), scale2, shift2, eps)

    def feed(x: Tensor) -> Tensor:
        hidden = F.linear(x, up, up_bias)
        return F.linear(F.gelu(hidden) if gelu else F.relu(hidden), down, down_bias)

    def request() -> Request:
        x = _padded(source)
        q, k, v = F.linear(before(x), in_weight, in_bias).chunk(3, dim=-1)
        return _request(q, k, v, heads, _fast_mask(source, mask, mask_type), None)

    def combine(request: Request | None, weights: Tensor, rows: slice) -> Tensor:
        x = _padded(source)[:, rows] + _joined(request, weights, rows, out_weight, out_bias)
        if norm_first:
            return _real(source, x + feed(norm2(x)), rows)
        x = norm1(x)
        return _real(source, norm2(x + feed(x)), rows)

    tensors = (("x", source), ("in_proj_weight", in_weight), ("out_proj", out_weight))
    path = "transformer_encoder_layer"
    return _fast(source, output, heads, path, request, combine, tensors, before)


def _fast(
    source: Tensor,
    output: Tensor,
    heads: int,
    path: str,
    request: Any,
    combine: Any,
    tensors: tuple[tuple[str, Tensor], ...],
    before: Callable[[Tensor], Tensor],
) -> CallRecord:
    x = _padded(source)
    batch, length = x.shape[:2]
    shape = (batch, heads, length, length)
    return CallRecord(
        x,
        _padded(output),
        shape,
        path,
        request,
        map_of,
        combine,
        tensors=tensors,
        layer_inputs=lambda: (before(x),) * 3,
    )


def _request(
    q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Mask | None, bias: Tensor | None
) -> Request:
    """A request over heads, from projected (batch, length, E)."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    return make_request(
        q, k, v, score=ScaledDot(), mask=mask, bias=bias, normalize=softmax, dropout=0.0
    )


def _joined(
    request: Request | None,
    weights: Tensor,
    rows: slice,
    out_weight: Tensor,
    out_bias: Tensor | None,
) -> Tensor:
    """The concatenated heads of weights · values, projected to the output, (batch, rows, E)."""
    assert request is not None
    context = weights @ request.value.to(weights.dtype)  # (batch, heads, rows, width)
    context = request.edited(context, rows)
    return F.linear(context.transpose(1, 2).flatten(-2), out_weight, out_bias)


def _packed(weight: Tensor | None) -> tuple[Tensor, ...]:
    assert weight is not None
    return weight.chunk(3)


def _masks(
    attn_mask: Tensor | None, padding: Tensor | None, heads: int, extra: int
) -> tuple[Mask | None, Tensor | None]:
    """A mask and a bias of torch's two masks, in which True may not attend."""
    mask: Mask | None = None
    bias: Tensor | None = None
    if attn_mask is not None and attn_mask.dim() == 3:  # (batch · heads, M, N)
        attn_mask = attn_mask.unflatten(0, (-1, heads)) if len(attn_mask) > 1 else attn_mask
    if padding is not None:
        padding = padding[:, None, None]  # (batch, 1, 1, N)
    for each in (attn_mask, padding):
        if each is None:
            continue
        each = F.pad(each, (0, extra))  # what torch appends is seen by all
        if each.dtype == torch.bool:
            mask = visible(~each) if mask is None else mask & visible(~each)
        else:
            bias = each if bias is None else bias + each
    return mask, bias


def _fast_mask(source: Tensor, mask: Tensor | None, mask_type: int | None) -> Mask | None:
    """The mask of a fast path: (L, L), (batch, L) or (batch, heads, L, L); nonzero hides."""
    if source.is_nested:
        return visible(_is_real(source)[:, None, None])
    if mask is None:
        return None
    hidden = mask.to(torch.bool)
    return visible(~(hidden[:, None, None] if mask_type == 1 else hidden))


def _padded(x: Tensor) -> Tensor:
    return x.to_padded_tensor(0.0) if x.is_nested else x


def _is_real(nested: Tensor) -> Tensor:
    """Which positions of the padded tensor a nested tensor has, bool (batch, L)."""
    counts = torch.tensor([len(each) for each in nested.unbind()])
    return torch.arange(int(counts.max())) < counts[:, None]


def _real(source: Tensor, made: Tensor, rows: slice = slice(None)) -> Tensor:
    """The result with zeros where a nested source has no position."""
    return made * _is_real(source)[:, rows, None] if source.is_nested else made


def _known(tensors: dict[str, Tensor | None]) -> tuple[tuple[str, Tensor], ...]:
    return tuple((name, tensor) for name, tensor in tensors.items() if tensor is not None)
