"""Attention functions of other packages: flash-attn, xFormers, flex_attention, PyG, deformable.

Each is replaced under the names that the files of a model gave it. What makes an attention call of
its arguments is a function here with the signature of the original, and its output in front.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from regard.attention.dispatch import map_of
from regard.attention.record import CallRecord
from regard.core.elementwise import SoftCap
from regard.core.lower import DotScore
from regard.core.map import AttentionMap
from regard.core.mask import Mask, segments, visible, window
from regard.core.normalize import softmax
from regard.core.request import Request, make_request
from regard.layers.edges import edge_map

FAR = 2**40
"""The reach of a window that has no end."""


# ---------------------------------------------------------------------- heads after the length


def flash(
    output: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> CallRecord:
    """A call of `flash_attn_func`: the last query stands at the last key."""

    def mask() -> Mask | None:
        left, right = (FAR if side is None or side < 0 else side for side in window_size)
        right = 0 if causal else right
        return None if left == right == FAR else window(left, right)

    def bias() -> Tensor | None:
        return None if alibi_slopes is None else _alibi(alibi_slopes, q.shape[1], k.shape[1])

    return _call("flash_attn", output, (q, k, v), softmax_scale, softcap, mask, bias, dropout_p)


def flash_varlen(
    output: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    *_: Any,
    **__: Any,
) -> CallRecord:
    """A call of `flash_attn_varlen_func`: sequences one after another, (total, heads, width)."""

    def mask() -> Mask:
        left, right = (None if side is None or side < 0 else side for side in window_size)
        return _packed(cu_seqlens_q, cu_seqlens_k, q, k, left, 0 if causal else right)

    three = (q[None], k[None], v[None])
    whole = output[0] if isinstance(output, tuple) else output
    made = _call(
        "flash_attn_varlen", whole[None], three, softmax_scale, softcap, mask, dropout=dropout_p
    )
    made.result = (whole, lambda gradient: gradient[None].transpose(1, 2))
    return made


def varlen(
    output: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    block_table: Tensor | None = None,
    **_: Any,
) -> CallRecord | None:
    """A call of torch's `varlen_attn`."""
    if block_table is not None:
        return None
    cu_seq_k = cu_seq_q if cu_seq_k is None else cu_seq_k
    lengths = cu_seq_q, cu_seq_k, max_q, max_k
    made = flash_varlen(
        output, query, key, value, *lengths, softmax_scale=scale, window_size=window_size
    )
    made.path = "varlen_attn"
    return made


def xformers(
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    **_: Any,
) -> CallRecord:
    """A call of `memory_efficient_attention`: (batch, length, heads, width), or without heads."""
    if query.dim() == 3:
        query, key, value = (each.unsqueeze(2) for each in (query, key, value))
    heads = query.shape[2:-1]

    def bias() -> Tensor | None:
        if attn_bias is None or isinstance(attn_bias, Tensor):
            return attn_bias
        shape = (len(query), *heads, query.shape[1], key.shape[1])
        bias: Tensor = attn_bias.materialize(shape, dtype=query.dtype, device=query.device)
        return bias

    def wide(x: Tensor) -> Tensor:
        return x if query.dim() == 4 else x.flatten(2, 3)

    three = (wide(query), wide(key), wide(value))
    made = _call("memory_efficient_attention", output, three, scale, 0.0, None, bias, p)
    shape = (*three[0].shape[:3], value.shape[-1])
    made.output = output.reshape(shape).transpose(1, 2)
    made.result = (output, lambda gradient: gradient.reshape(shape).transpose(1, 2))
    return made


def _call(
    path: str,
    output: Any,
    three: tuple[Tensor, Tensor, Tensor],
    scale: float | None,
    cap: float,
    mask: Callable[[], Mask | None] | None,
    bias: Callable[[], Tensor | None] | None = None,
    dropout: float = 0.0,
) -> CallRecord:
    """A call over (batch, length, heads, width), in which groups of heads may share keys."""
    query, key, value = (each.transpose(1, 2) for each in three)
    whole = output[0] if isinstance(output, tuple) else output
    heads, groups = query.shape[1], query.shape[1] // key.shape[1]

    def request() -> Request:
        k, v = (x if groups == 1 else x.repeat_interleave(groups, 1) for x in (key, value))
        plain = DotScore(query.shape[-1] ** -0.5 if scale is None else scale)
        score = SoftCap(cap, plain) if cap else plain
        own, added = None if mask is None else mask(), None if bias is None else bias()
        return make_request(query, k, v, score=score, mask=own, bias=added, normalize=softmax)

    def combine(request: Request, weights: Tensor, _: slice) -> Tensor:
        return weights @ request.value.to(weights.dtype)

    return CallRecord(
        value,
        whole.transpose(1, 2) if whole.dim() == 4 else None,
        (query.shape[0], heads, query.shape[2], key.shape[2]),
        path,
        request,
        map_of,
        None if dropout else combine,
        tensors=(("query", query), ("key", key), ("value", value)),
        result=(whole, lambda gradient: gradient.transpose(1, 2)),
    )


def _alibi(slopes: Tensor, queries: int, keys: int) -> Tensor:
    """−slope · |distance|, (heads or batch, heads, M, N)."""
    position = torch.arange(keys - queries, keys, device=slopes.device)[:, None]
    distance = (position - torch.arange(keys, device=slopes.device)).abs()
    return -slopes[..., None, None] * distance


def _packed(
    starts_q: Tensor, starts_k: Tensor, q: Tensor, k: Tensor, left: int | None, right: int | None
) -> Mask:
    """Which keys of its own sequence each query sees; the last stands at the last key."""
    number = torch.arange(len(starts_q) - 1, device=q.device)
    lengths_q, lengths_k = starts_q.diff(), starts_k.diff()
    own_q, own_k = (number.repeat_interleave(each) for each in (lengths_q, lengths_k))
    mask: Mask = segments(own_q, own_k)
    if left is None and right is None:
        return mask
    place_q = torch.arange(len(q), device=q.device) - starts_q[own_q]
    place_k = torch.arange(len(k), device=q.device) - starts_k[own_k]
    place_q = place_q + (lengths_k - lengths_q)[own_q]
    gap = place_k - place_q[:, None]
    seen = torch.ones_like(gap, dtype=torch.bool)
    seen = seen if left is None else seen & (gap >= -left)
    return mask & visible(seen if right is None else seen & (gap <= right))


# ---------------------------------------------------------------------- flex_attention


def flex(
    output: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    *_: Any,
    **__: Any,
) -> CallRecord:
    """A call of `flex_attention`: its scores and mask depend on positions, as in no request."""
    whole = output[0] if isinstance(output, tuple) else output
    groups = query.shape[1] // key.shape[1]
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    query, key, value = (each.detach() for each in (query, key, value))

    def heads(x: Tensor) -> Tensor:
        return x if groups == 1 else x.repeat_interleave(groups, 1)

    def scores(rows: slice) -> Tensor:
        made = (query[..., rows, :].float() @ heads(key).float().mT) * factor
        return made if score_mod is None else _by_cell(score_mod, rows, made)

    def weights(rows: slice) -> Tensor:
        made, seen = scores(rows), None
        if block_mask is not None and getattr(block_mask, "mask_mod", None) is not None:
            shape = torch.zeros(1, device=query.device).expand(made.shape)
            seen = _by_cell(lambda _, *place: block_mask.mask_mod(*place), rows, shape)
            made = made.masked_fill(~seen, -torch.inf)
        return made.softmax(-1).nan_to_num(0.0).to(value.dtype)

    def combine(_: Any, rows: Tensor, __: slice) -> Tensor:
        return rows @ heads(value).to(rows.dtype)

    shape = (*query.shape[:-1], key.shape[-2])
    return CallRecord(
        value,
        whole,
        shape,
        "flex_attention",
        None,
        lambda _: AttentionMap(weights, scores, shape),
        combine,
        tensors=(("query", query), ("key", key), ("value", value)),
        about={"normalizer": "softmax"},
        result=(whole, lambda gradient: gradient),
    )


def _by_cell(function: Callable, rows: slice, scores: Tensor) -> Tensor:
    """A function of (score, batch, head, query, key) for the cells of some rows."""
    batch, heads, _, keys = scores.shape
    device = scores.device
    numbers = [torch.arange(count, device=device) for count in (batch, heads)]
    numbers += [torch.arange(rows.start, rows.stop, device=device)]
    numbers += [torch.arange(keys, device=device)]
    for dim in (4, 3, 2, 1):  # the keys innermost
        places = (0 if dim == each else None for each in range(1, 5))
        function = torch.vmap(function, in_dims=(0, *places))
    made: Tensor = function(scores, *numbers)
    return made


# ---------------------------------------------------------------------- sparse maps


def edge_softmax(
    output: Tensor,
    src: Tensor,
    index: Tensor | None = None,
    ptr: Tensor | None = None,
    num_nodes: int | None = None,
    dim: int = 0,
) -> CallRecord | None:
    """A call of PyG's `softmax` while messages pass along edges, which a caller's frame holds."""
    edges = _edges(index)
    if edges is None or dim != 0 or output.dim() > 2:
        return None
    source, target = edges
    nodes = int(edges.max()) + 1 if num_nodes is None else max(num_nodes, int(edges.max()) + 1)
    weights = output.detach().reshape(len(output), -1)
    return CallRecord(
        output,
        None,
        (weights.shape[1], nodes, nodes),
        "edges",
        None,
        lambda _: edge_map(weights, target, source, nodes),
        None,
        weights=weights,
        has_batch=False,
        about={"normalizer": "softmax"},
    )


def _edges(index: Tensor | None) -> Tensor | None:
    """The edges (2, E) to the nodes `index` that a calling function knows as `edge_index`."""
    frame: Any = sys._getframe(2)
    while index is not None and frame is not None:
        edges = frame.f_locals.get("edge_index")
        if (
            isinstance(edges, Tensor)
            and edges.shape == (2, len(index))
            and torch.equal(edges[1], index)
        ):
            return edges
        frame = frame.f_back
    return None


def deformable(
    output: Tensor,
    _: Any,
    value: Tensor,
    value_spatial_shapes: Any,
    *args: Any,
    **options: Any,
) -> CallRecord | None:
    """A call of a `MultiScaleDeformableAttention`: each query sees some points of some images.

    A point between four cells sees each of them in proportion (bilinear), and nothing outside.
    """
    points = [each for each in (*args, *options.values()) if isinstance(each, Tensor)]
    place = next((each for each in points if each.dim() == 6 and each.shape[-1] == 2), None)
    weights = next((each for each in points if place is not None and each.dim() == 5), None)
    if place is None or weights is None or value.dim() != 4:
        return None
    sizes = [(int(height), int(width)) for height, width in value_spatial_shapes]
    batch, keys, heads, _ = value.shape
    where, share = place.detach(), weights.detach()
    queries = where.shape[1]

    def rows(some: slice) -> Tensor:
        made = share.new_zeros(batch, heads, some.stop - some.start, keys)
        start = 0
        for level, (height, width) in enumerate(sizes):
            own = where[:, some, :, level].transpose(1, 2)  # (batch, heads, rows, points, 2)
            part = share[:, some, :, level].transpose(1, 2)
            x, y = own[..., 0] * width - 0.5, own[..., 1] * height - 0.5
            for column in (x.floor(), x.floor() + 1):
                for row in (y.floor(), y.floor() + 1):
                    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
                    near = (1 - (x - column).abs()) * (1 - (y - row).abs())
                    cell = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
                    made.scatter_add_(-1, start + cell, part * near * inside)
            start += height * width
        return made

    def combine(_: Any, weights: Tensor, __: slice) -> Tensor:
        return weights @ value.detach().transpose(1, 2).to(weights.dtype)

    shape = (batch, heads, queries, keys)
    return CallRecord(
        value,
        output.unflatten(-1, (heads, -1)).transpose(1, 2),
        shape,
        "deformable",
        None,
        lambda _: AttentionMap(rows, None, shape),
        combine,
        tensors=(("value", value), ("locations", place), ("weights", weights)),
        about={"normalizer": "softmax"},
        result=(output, lambda gradient: gradient.unflatten(-1, (heads, -1)).transpose(1, 2)),
    )


FUNCTIONS: dict[str, Callable[..., CallRecord | None]] = {
    "flash_attn_func": flash,
    "flash_attn_varlen_func": flash_varlen,
    "varlen_attn": varlen,
    "memory_efficient_attention": xformers,
    "flex_attention": flex,
    "softmax": edge_softmax,
}
"""Names of functions, and what makes an attention call of their output and arguments."""

HOMES = ("flash_attn", "torch.nn.attention", "xformers", "torch_geometric")
"""Packages of those functions: a function of the same name from elsewhere is another."""

PLACES = (
    ("flash_attn", "flash_attn_func"),
    ("flash_attn", "flash_attn_varlen_func"),
    ("xformers.ops", "memory_efficient_attention"),
    ("torch.nn.attention.flex_attention", "flex_attention"),
    ("torch.nn.attention.varlen", "varlen_attn"),
    ("transformers.integrations.flex_attention", "compile_friendly_flex_attention"),
    ("torch_geometric.utils", "softmax"),
)
"""Modules through which code may call them, if they are imported."""

DEFORMABLE = "MultiScaleDeformableAttention"


def places(kinds: Iterable[type]) -> dict[tuple[Any, str], Callable[..., CallRecord | None]]:
    """What to replace for some classes, and what makes attention calls of it."""
    found: dict[tuple[Any, str], Callable[..., CallRecord | None]] = {}
    for kind in kinds:
        file = vars(sys.modules.get(kind.__module__, object))
        for name, report in FUNCTIONS.items():
            home = getattr(file.get(name), "__module__", None) or ""
            if callable(file.get(name)) and home.startswith(HOMES):
                found[sys.modules[kind.__module__], name] = report
        if kind.__name__.endswith(DEFORMABLE):
            found[kind, "forward"] = deformable
    for package, name in PLACES:
        module = sys.modules.get(package)
        if module is not None and hasattr(module, name):
            found[module, name] = FUNCTIONS[name.removeprefix("compile_friendly_")]
    return found
