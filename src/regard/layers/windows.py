"""Attention to a window of keys for each query, in time and memory of the windows.

Both functions work on chunks of queries, each with the keys of its windows, and never on the
M × N map. `in_chunks` is for windows around each query's own position; `around` is for any centres,
by which it first sorts the queries.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import attend
from regard.core.blocks import by_rows, can_inspect_values
from regard.core.lower import DotScore, lower
from regard.core.normalize import softmax
from regard.core.request import Request
from regard.core.score import Score, precise
from regard.core.weighted_sum import weighted_sum
from regard.layers.dropout import drop
from regard.paths.additive import with_kernel

CHUNK = 64
"""The smallest number of queries of a chunk."""


class Interval(NamedTuple):
    """The range [low, high) of keys of each query, (B, M, 1), and whether all in it are visible."""

    low: Tensor
    high: Tensor
    whole: bool


def interval(request: Request) -> Interval:
    """The range of keys that the mask of a request (B, M, N) leaves to each query."""
    full: Tensor | bool = True
    if request.mask is None:
        low = torch.zeros((), dtype=torch.long, device=request.query.device)
        high = low + request.keys
    else:
        low, high, full = request.mask.key_range(request.grid)
    if isinstance(full, Tensor):  # a compiler has no values
        full = can_inspect_values(full) and bool(full.all())
    shape = (*request.leading, request.queries)
    return Interval(low.expand(shape).unsqueeze(-1), high.expand(shape).unsqueeze(-1), full)


def in_chunks(request: Request, window: int, offset: int, dropout: float) -> Tensor:
    """Attend to the keys around each query's own position, [i + offset − D, i + offset + D].

    A chunk is a run of neighbouring queries with the keys of all their windows.

    Args:
        request: query (B, M, Dq), key (B, N, Dk), value (B, N, Dv) and mask
        window: D
        dropout: of the weights

    Returns: (B, M, Dv)
    """
    B, M, N = request.leading[0], request.queries, request.keys
    if not M or not N:
        return request.value.new_zeros(B, M, request.value.shape[-1])
    R = min(M, max(CHUNK, 2 * window))  # queries of a chunk; K = R + 2D are its keys
    count = -(-M // R)
    device = request.query.device
    row = torch.arange(count * R, device=device).view(count, R, 1)
    near = torch.arange(R + 2 * window, device=device)
    place = row[:, :1] + (offset - window) + near  # (count, 1, K), the keys of each chunk
    after = near - row[0]  # (R, K), how far behind the first key of its window each key is
    band = (after >= 0) & (after <= 2 * window)
    visible = band & ((place >= 0) & (place < N)) & (row < M)  # (count, R, K)
    row, place = row.clamp(max=M - 1), place.clamp(0, N - 1)
    if request.mask is not None:
        low, high, whole = interval(request)
        seen = (place >= low[:, row[..., 0]]) & (place < high[:, row[..., 0]])
        if not whole:
            seen = seen & _dense(request, slice(0, M))[:, row, place]
        visible = visible & seen  # (B, count, R, K)
    query, key, score = _lowered(request)
    query = F.pad(query, (0, 0, 0, count * R - M)).unflatten(-2, (count, R))
    key, value = (
        tensor.index_select(-2, place.flatten()).unflatten(-2, (count, -1))
        for tensor in (key, request.value)
    )
    context = attend(query, key, value, score=score, mask=visible, dropout=dropout)
    return context.flatten(-3, -2)[..., :M, :]


def around(
    request: Request,
    window: int,
    center: Tensor,
    fade: Callable[[Tensor], Tensor | None],
    dropout: float,
) -> Tensor:
    """Attend to the keys around any centres p, those of [p − D, p + D].

    The keys are divided into stretches, and each chunk holds queries whose centres lie on one
    stretch, with the keys within D of it.

    Args:
        request: query (B, M, Dq), key (B, N, Dk), value (B, N, Dv) and mask
        window: D
        center: p, integers or floats, (B, M, 1)
        fade: from the distance to the centre to a factor of the weights, or None
        dropout: of the weights

    Returns: (B, M, Dv)
    """
    B, M, N = request.leading[0], request.queries, request.keys
    if not M or not N:
        return request.value.new_zeros(B, M, request.value.shape[-1])
    low, high, whole = interval(request)
    dense = None if whole else _dense(request, slice(0, M))
    plan = _part(center.detach().squeeze(-1), N, stretch=max(CHUNK, 2 * window))
    lowered = with_kernel(lower(request))
    key, value = (
        tensor.expand(B, N, tensor.shape[-1]).reshape(B * N, -1)
        for tensor in (lowered.key, lowered.value)
    )
    sequence = torch.arange(B, device=key.device).view(-1, 1, 1)
    near = torch.arange(-window, plan.stretch + window + 1, device=key.device)

    def chunks(
        query: Tensor, p: Tensor, low: Tensor, high: Tensor, row: Tensor, first: Tensor, _: slice
    ) -> Tensor:
        query = query.unflatten(-1, (row.shape[-1], -1))  # (B, chunks, R, Dq)
        place = first + near  # (B, chunks, K)
        distance = place.unsqueeze(-2) - p.unsqueeze(-1)  # (B, chunks, R, K)
        visible = distance.abs() <= window
        visible &= (place.unsqueeze(-2) >= low.unsqueeze(-1)) & (
            place.unsqueeze(-2) < high.unsqueeze(-1)
        )
        place = place.clamp(0, N - 1)
        if dense is not None:
            at = (sequence.unsqueeze(-1), row.unsqueeze(-1), place.unsqueeze(-2))
            visible &= dense[at]
        seen = visible.any(-2).unsqueeze(-1)  # NaN in a hidden key stays there
        place = place + sequence * N
        keys = torch.where(seen, F.embedding(place, key), 0.0)
        values = torch.where(seen, F.embedding(place, value), 0.0)
        scores = lowered.score(query, keys)
        weights = softmax(scores.to(precise(scores.dtype)), visible)
        factor = fade(distance)
        weights = weights if factor is None else weights * factor
        return weighted_sum(drop(weights, dropout, True), values).flatten(-2)

    context = by_rows(
        chunks,
        plan.take(lowered.query).flatten(-2),
        *(plan.take(tensor).squeeze(-1) for tensor in (center, low, high)),
        plan.row,
        plan.first,
        elements=B * len(near) * (4 * plan.row.shape[-1] + key.shape[-1] + value.shape[-1]),
    )
    context = context.unflatten(-1, (plan.row.shape[-1], -1)).flatten(1, 2)
    return context.gather(1, plan.slot.unsqueeze(-1).expand(-1, -1, context.shape[-1]))


def _lowered(request: Request) -> tuple[Tensor, Tensor, Score]:
    """Queries, keys and a score independent of positions; a location score has them as keys."""
    lowered = lower(request)
    if isinstance(lowered.score, DotScore):
        return lowered.query, lowered.key, lowered.score
    return request.query, request.key, request.score


class _Parts(NamedTuple):
    """Chunks of R queries, some of whose slots stay empty."""

    row: Tensor  # (B, chunks, R), the query in each slot, any where it is empty
    taken: Tensor  # (B, chunks, R), whether the slot is used
    slot: Tensor  # (B, M), the slot of each query, counted through the chunks
    first: Tensor  # (B, chunks, 1), the first key of the stretch
    stretch: int

    def take(self, tensor: Tensor) -> Tensor:
        """Rows of (B, M, D) in their slots, zeros in empty ones, (B, chunks, R, D)."""
        index = self.row.flatten(1).unsqueeze(-1).expand(-1, -1, tensor.shape[-1])
        return torch.where(
            self.taken.unsqueeze(-1), tensor.gather(1, index).unflatten(1, self.row.shape[1:]), 0
        )


def _part(center: Tensor, keys: int, stretch: int) -> _Parts:
    """Chunks of at most `stretch` queries, each with centres (B, M) on one stretch of keys."""
    B, M = center.shape
    R, stretches = min(M, stretch), keys // stretch + 1
    chunks = min(M, M // R + stretches)  # full ones, and at most one more for each stretch
    on = (center / stretch).long().clamp(0, stretches - 1)  # (B, M)
    count = on.new_zeros(B, stretches).scatter_add(1, on, torch.ones_like(on))
    used = -(-count // R)  # chunks that a stretch needs
    on, order = on.sort(dim=1, stable=True)
    rank = torch.arange(M, device=on.device) - (count.cumsum(1) - count).gather(1, on)
    slot = (used.cumsum(1) - used).gather(1, on) * R + rank  # of the queries in their new order
    row = order.new_full((B, chunks * R), -1).scatter(1, slot, order).view(B, chunks, R)
    first = on.new_zeros(B, chunks).scatter(1, slot // R, on * stretch)
    slot = torch.empty_like(slot).scatter(1, order, slot)
    return _Parts(row.clamp(min=0), row >= 0, slot, first.unsqueeze(-1), stretch)


def _dense(request: Request, rows: slice) -> Tensor:
    """The dense mask of some rows, (B, rows, N)."""
    block = request.visible(rows)
    assert block is not None
    return block.expand(*request.leading, rows.stop - rows.start, request.keys)
