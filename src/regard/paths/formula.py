"""The plain formula within tiles, for second derivatives, compilers and other devices.

It holds the rows × keys of one tile at a time.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.paths.kernels.custom_operator import second_gradients
from regard.paths.tile_plan import ALL, Tile, continued, is_whole


def sdpa_fallback(
    query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile], scale: float
) -> Tensor:
    """Attention within tiles through torch's public function, which knows every device.

    A float mask has the dtype of the query: on some CPUs torch gives wrong numbers for a float64
    query with a float32 mask. Half precision is computed in that of a wider mask, which may be a
    bias that half precision cannot hold.
    """
    output = torch.zeros_like(query)
    for group in continued(tiles):
        q, keys, values = _cut(query, key, value, group)
        k, v = _joined(keys), _joined(values)
        causal = len(group) == 1 and group[0].causal and group[0].mask is None
        mask = None if causal else _mask(group, q, keys)
        if mask is not None and mask.dtype != torch.bool:
            wide = torch.promote_types(q.dtype, mask.dtype)
            q, k, v, mask = (t.to(wide) for t in (q, k, v, mask))
        grouped = True if q.shape[1] != k.shape[1] else False  # noqa: SIM210, a SymBool is not a bool
        part = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
        ).to(query.dtype)
        if is_whole(tiles):
            return part
        output[group[0].batch, :, group[0].rows] = part
    return output


def second_gradients_in_tiles(
    upstream: Sequence[Tensor],
    inputs: Sequence[Tensor | None],
    tiles: Sequence[Tile],
    scale: float,
) -> list[Tensor | None]:
    """The derivative of the gradients of query, key, value and sink, a group of tiles at a time.

    Args:
        upstream: of these gradients
        inputs: grad (B, H, M, D), query, key, value and sink, which may be None

    Returns: one for each of the inputs
    """
    totals = [None if t is None else torch.zeros_like(t) for t in inputs]
    above_query, above_key, above_value, above_sink = upstream
    grad, query, key, value, sink = inputs
    assert grad is not None
    assert query is not None
    assert key is not None
    assert value is not None
    query, key, value = visible_only(query, key, value, tiles)
    for group in continued(tiles):
        rows, count = (group[0].batch, ALL, group[0].rows), len(group)
        q, keys, values = _cut(query, key, value, group)
        above, more, most = _cut(above_query, above_key, above_value, group)
        sinks = [] if sink is None else [sink[group[0].batch]]
        above_sinks = [above_sink[group[0].batch]] if sinks else []
        mask = _mask(group, q, keys)

        def output(q: Tensor, *rest: Tensor, mask: Tensor | None = mask, n: int = count) -> Tensor:
            keys, values = _joined(rest[:n]), _joined(rest[n : 2 * n])
            return _attend(q, keys, values, mask, scale, *rest[2 * n :])

        parts = (grad[rows], q, *keys, *values, *sinks)
        outer = (above, *more, *most, *above_sinks)
        second = second_gradients(output, outer, parts, len(outer))
        columns = [(tile.batch, ALL, tile.keys) for tile in group]
        places: list[tuple[int, Any]] = [(0, rows), (1, rows)]
        places += [(number, column) for number in (2, 3) for column in columns]
        places += [(4, group[0].batch)] * len(sinks)
        for (number, place), part in zip(places, second, strict=True):
            total = totals[number]
            assert total is not None
            total[place] += part
    return totals


def visible_only(
    query: Tensor, key: Tensor, value: Tensor, tiles: Sequence[Tile]
) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for keys and values hidden from all queries, and for queries that see nothing.

    A weight of zero does not stop NaN or inf: 0 · NaN is NaN.
    """
    groups = key.shape[1]
    seeing = query.new_zeros(query.shape[:3], dtype=torch.bool)  # (B, H, M)
    seen = key.new_zeros(key.shape[:3], dtype=torch.bool)  # (B, G, N)
    for tile in tiles:
        rows, keys = seeing[tile.batch, :, tile.rows], seen[tile.batch, :, tile.keys]
        mask = _shown(tile, rows.shape[2], keys.shape[2], query.device)
        shown = mask if mask.dtype == torch.bool else mask != -math.inf
        shown = shown[(None,) * (4 - shown.dim())]
        rows |= shown.any(3)
        by_key = shown.any(2)  # (batch, H or 1, keys)
        if by_key.shape[1] > groups:
            by_key = by_key.unflatten(1, (groups, -1)).any(2)
        keys |= by_key
    seeing, seen = seeing.unsqueeze(-1), seen.unsqueeze(-1)
    return tuple(  # type: ignore[return-value]
        t.masked_fill(~known, 0.0) for t, known in ((query, seeing), (key, seen), (value, seen))
    )


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    sink: Tensor | None = None,
) -> Tensor:
    """softmax(scale · Q Kᵀ + mask) V, where a query that sees nothing gets zeros."""
    key, value = key.unsqueeze(2), value.unsqueeze(2)
    grouped = query.unflatten(1, (key.shape[1], -1))  # (batch, G, H / G, rows, D)
    scores = (grouped @ key.transpose(-1, -2) * scale).flatten(1, 2)  # (batch, H, rows, keys)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    scores = scores.masked_fill(blind, 0.0)
    if sink is not None:
        column = sink.to(scores.dtype)[..., None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column), -1)
    weights = scores.softmax(-1)[..., : key.shape[-2]].masked_fill(blind, 0.0)
    return (weights.unflatten(1, (key.shape[1], -1)) @ value).flatten(1, 2)


def _cut(
    query: Tensor, key: Tensor, value: Tensor, group: list[Tile]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    places = [(tile.batch, ALL, tile.keys) for tile in group]
    rows = query[group[0].batch, :, group[0].rows]
    return rows, [key[place] for place in places], [value[place] for place in places]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), 2)


def _mask(group: list[Tile], query: Tensor, keys: list[Tensor]) -> Tensor | None:
    """The mask of a group of tiles, (batch or 1, H or 1, rows or 1, all keys or 1)."""
    if all(tile.mask is None and not tile.causal for tile in group):
        return None
    sizes = [part.shape[2] for part in keys]
    masks = [_shown(t, query.shape[2], n, query.device) for t, n in zip(group, sizes, strict=True)]
    mask = masks[0] if len(masks) == 1 else torch.cat(masks, -1)
    return mask[(None,) * (4 - mask.dim())]


def _shown(tile: Tile, rows: int, keys: int, device: torch.device) -> Tensor:
    """What a tile shows of its rectangle, bool or float, at least (rows, keys)."""
    if tile.mask is not None and not tile.causal:
        return tile.mask.to(device)
    shown = torch.ones(rows, keys, dtype=torch.bool, device=device)
    shown = shown.tril() if tile.causal else shown
    if tile.mask is None:
        return shown
    if tile.mask.dtype == torch.bool:
        return tile.mask & shown
    return tile.mask.masked_fill(~shown, -math.inf)
