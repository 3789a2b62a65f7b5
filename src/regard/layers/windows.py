"""A window of keys for each query, at the cost of the windows: two ways to bring them together.

Neither makes the M × N map, and both leave the attention itself to a function that they are
given, so that any score and dropout work inside a window.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.blocks import by_rows
from regard.core.mask import Mask
from regard.core.request import Request

CHUNK = 64
"""The fewest queries that are worked on together."""

Attend = Callable[[Tensor, Tensor, Tensor, Mask | Tensor | None], Tensor]
"""(query (..., M, Dq), key (..., N, Dk), value (..., N, Dv), mask) -> context (..., M, Dv)"""


class Interval(NamedTuple):
    """The keys [low, high) that each query can see, (B, M, 1), and whether it sees all of them."""

    low: Tensor
    high: Tensor
    whole: bool


def interval(request: Request) -> Interval:
    """What the mask of a request (B, M, N) lets each query see."""
    full: Tensor | bool = True
    if request.mask is None:
        low = torch.zeros((), dtype=torch.long, device=request.query.device)
        high = low + request.keys
    else:
        low, high, full = request.mask.reach(request.grid)
    if isinstance(full, Tensor):  # a compiler cannot look
        full = not torch.compiler.is_compiling() and bool(full.all())
    shape = (*request.leading, request.queries)
    return Interval(low.expand(shape).unsqueeze(-1), high.expand(shape).unsqueeze(-1), full)


def in_chunks(request: Request, window: int, offset: int, attend: Attend) -> Tensor:
    """Attend to the keys around each query's own position, [i + offset − D, i + offset + D].

    Neighbouring queries are worked on together, with the keys of all their windows.

    Args:
        request: query (B, M, Dq), key (B, N, Dk), value (B, N, Dv) and mask
        window: D

    Returns: (B, M, Dv)
    """
    M, N = request.queries, request.keys
    if not M or not N:
        return attend(request.query, request.key, request.value, request.mask)
    R = min(M, max(CHUNK, 2 * window))  # queries of a chunk; K = R + 2D are its keys
    count = -(-M // R)
    device = request.query.device
    row = torch.arange(count * R, device=device).view(count, R, 1)
    place = row[:, :1] + (offset - window) + torch.arange(R + 2 * window, device=device)
    near = (place - offset - row).abs() <= window  # (count, R, K)
    visible = near & (place >= 0) & (place < N) & (row < M)
    row, place = row.clamp(max=M - 1), place.clamp(0, N - 1)
    if request.mask is not None:
        low, high, whole = interval(request)
        seen = (place >= low[:, row[..., 0]]) & (place < high[:, row[..., 0]])
        if not whole:
            seen = seen & _dense(request, slice(0, M))[:, row, place]
        visible = visible & seen  # (B, count, R, K)
    query = F.pad(request.query, (0, 0, 0, count * R - M)).unflatten(-2, (count, R))
    key, value = (
        tensor.index_select(-2, place.flatten()).unflatten(-2, (count, -1))
        for tensor in (request.key, request.value)
    )
    return attend(query, key, value, visible).flatten(-3, -2)[..., :M, :]


def around(
    request: Request,
    window: int,
    center: Tensor,
    attend: Attend,
    fade: Callable[[Tensor], Tensor | None],
) -> Tensor:
    """Attend to the keys around any centres p, those of [p − D, p + D].

    The keys of each query are gathered, some rows at a time, and gathered again in backward.

    Args:
        request: query (B, M, Dq), key (B, N, Dk), value (B, N, Dv) and mask
        window: D
        center: p, whole numbers or not, (B or none, M, 1)
        fade: from the distance to the centre to a factor on the weights, or None

    Returns: (B, M, Dv)
    """
    N = request.keys
    if not request.queries or not N:
        return attend(request.query, request.key, request.value, request.mask)
    batch = request.leading[0]
    key, value = (
        tensor.expand(batch, N, tensor.shape[-1]).reshape(batch * N, -1)
        for tensor in (request.key, request.value)
    )
    low, high, whole = interval(request)
    steps = torch.arange(2 * window + 1, device=key.device)
    sequence = torch.arange(batch, device=key.device).view(-1, 1, 1) * N

    def rows(query: Tensor, p: Tensor, low: Tensor, high: Tensor, where: slice) -> Tensor:
        place = (p.detach() - window).ceil() + steps  # (B, rows, 2D + 1)
        visible = ((place - p).abs() <= window) & (place >= low) & (place < high)
        index = place.long().clamp(0, N - 1).expand(visible.shape)
        if not whole:
            visible = visible & _dense(request, where).gather(-1, index)
        index = index + sequence
        shown = F.embedding(index, value).masked_fill(~visible.unsqueeze(-1), 0.0)
        factor = fade(place - p)
        if factor is not None:  # a factor on a weight is a factor on the value that it weighs
            shown = (shown * factor.unsqueeze(-1)).to(value.dtype)
        near = F.embedding(index, key)  # (B, rows, 2D + 1, Dk)
        return attend(query.unsqueeze(-2), near, shown, visible.unsqueeze(-2)).squeeze(-2)

    elements = batch * len(steps) * (key.shape[-1] + value.shape[-1])
    return by_rows(rows, request.query, center, low, high, elements=elements)


def _dense(request: Request, rows: slice) -> Tensor:
    """The mask of some rows, written out, (B, rows, N)."""
    block = request.visible(rows)
    assert block is not None
    return block.expand(*request.leading, rows.stop - rows.start, request.keys)
