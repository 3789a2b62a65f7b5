"""The packed path: several sequences in one, of which those of equal lengths are one call.

`segments` of a packed batch, such as a jagged tensor, are sorted by length: a group is a batch
without padding. Only what is visible is computed, in as many calls as there are lengths.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.core.mask import Grid, Mask, Window
from regard.core.mask.algebra import And
from regard.core.mask.segment import Segments
from regard.core.normalize import as_softmax
from regard.core.request import Request
from regard.paths import banded, fused
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import ALL, WHOLE, Tile

LEAST = 2**21
"""Multiplications that are saved, from which sorting pays."""

CALL = 2**20
"""Multiplications that take as long as the overhead of one group."""

Starts = list[tuple[int, int]]  # of the queries and the keys of segments


def unsupported_reason(request: Request) -> str | None:
    """Why this request is not a packed batch that can be sorted, or None."""
    if parts(request.mask) is None:
        return "the mask is not segments of one row of ids, with causal() or window()"
    reason = banded.unsupported_anyway(request)
    if reason:
        return reason
    if torch.compiler.is_compiling():
        return "the lengths are values, which torch.compile does not know"
    form = as_softmax(request.normalize)
    if form is None or form.sink is not None or isinstance(form.temperature, Tensor):
        return "heads have sinks or temperatures of their own"
    if groups(request) is None:
        return "a segment is interrupted by another, or has a window and fewer queries than keys"
    return None


def pays(request: Request) -> bool:
    """Whether sorting the sequences is faster: where the map is too small to look for bands."""
    if not request.query.is_cpu or not fused.is_small(request) or unsupported_reason(request):
        return False
    found = groups(request)
    assert found is not None
    width = request.query.shape[-1] + request.value.shape[-1]
    visible = sum(length * keys * len(starts) for (length, keys), starts in found.items())
    saved = (request.cells - visible * request.leading.numel()) * width
    return saved > LEAST + CALL * len(found)


def parts(mask: Mask | None) -> tuple[Segments, Mask | None] | None:
    """The segments of a packed sequence, and the window inside of each; None for other masks."""
    if isinstance(mask, Segments):
        return (mask, None) if mask.leading == 0 else None
    if type(mask) is not And:
        return None
    for one, other in ((mask.left, mask.right), (mask.right, mask.left)):
        if (found := parts(one)) is not None and is_window(other):
            window = found[1]
            return found[0], other if window is None else window & other
    return None


def is_window(mask: Mask) -> bool:
    """Whether a mask is the same for every sequence: windows and causal masks alone."""
    if type(mask) is And:
        return is_window(mask.left) and is_window(mask.right)
    return isinstance(mask, Window)


def groups(request: Request) -> dict[tuple[int, int], Starts] | None:
    """Where the segments of each number of queries and keys start; None if one is interrupted."""
    found = parts(request.mask)
    assert found is not None
    segments, window = found
    queries, keys = segments.query_runs, segments.key_runs
    if queries is None or keys is None:
        return None
    if window is not None and queries != keys:  # the last query of each is at its last key
        return None
    by_size: dict[tuple[int, int], Starts] = {}
    for number, (start, length) in queries.items():
        if number in keys:
            first, width = keys[number]
            by_size.setdefault((length, width), []).append((start, first))
    return by_size


def packed(request: Request) -> Tensor:
    """softmax(scale · Q Kᵀ, mask) V of each segment, (..., M, Dv)."""
    found, by_size = parts(request.mask), groups(request)
    assert found is not None
    assert by_size is not None
    window, device = found[1], request.query.device
    pieces = [(start, sizes) for sizes, starts in by_size.items() for start in starts]
    rows, keys = (
        _orders([(start[side], size[side]) for start, size in pieces], length)
        for side, length in enumerate(request.size)
    )
    query, key, scale = fused.divided_form(request)
    query, key, value = (
        _Permuted.apply(_length_first(x, request.leading), order.to(device), inverse.to(device))
        for x, (order, inverse) in ((query, rows), (key, keys), (request.value, keys))
    )
    counts = [(len(starts), *sizes) for sizes, starts in by_size.items()]
    queries = query.split([n * L for n, L, _ in counts] + [_rest(rows, counts, 1)])
    keys_, values = (
        x.split([n * S for n, _, S in counts] + [_rest(keys, counts, 2)]) for x in (key, value)
    )
    contexts = [
        attend_tiles(
            _heads_first(q, n), _heads_first(k, n), _heads_first(v, n), _tiles(window, L, q), scale
        )
        .transpose(1, 2)
        .flatten(0, 1)
        for (n, L, _), q, k, v in zip(counts, queries, keys_, values, strict=False)
    ]
    contexts.append(value.new_zeros(len(queries[-1]), *value.shape[1:]))
    order, inverse = (each.to(device) for each in rows)
    output = _Permuted.apply(torch.cat(contexts), inverse, order)  # (M, P, Dv)
    return output.transpose(0, 1).reshape(*request.leading, request.queries, value.shape[-1])


def _orders(pieces: list[tuple[int, int]], size: int) -> tuple[Tensor, Tensor]:
    """Positions piece by piece, then those in none; and the inverse permutation."""
    order = [index for start, length in pieces for index in range(start, start + length)]
    if len(order) < size:
        order += sorted(set(range(size)).difference(order))
    places = torch.tensor(order, dtype=torch.long)
    inverse = torch.empty_like(places)
    inverse[places] = torch.arange(size)
    return places, inverse


def _rest(orders: tuple[Tensor, Tensor], counts: list[tuple[int, int, int]], side: int) -> int:
    """How many positions belong to no group."""
    return len(orders[0]) - sum(count[0] * count[side] for count in counts)


def _length_first(x: Tensor, leading: torch.Size) -> Tensor:
    """(..., N, D) as (N, P, D): a row is what one position has, side by side in memory."""
    return x.expand(*leading, *x.shape[-2:]).reshape(-1, *x.shape[-2:]).transpose(0, 1)


def _heads_first(x: Tensor, count: int) -> Tensor:
    """(sequences · length, P, D) as (sequences, P, length, D)."""
    return x.unflatten(0, (count, -1)).transpose(1, 2)


def _tiles(window: Mask | None, length: int, query: Tensor) -> Sequence[Tile]:
    """What is visible within a sequence."""
    if window is None:
        return WHOLE
    if isinstance(window, Window) and window.square_causal(length, length):
        return fused.CAUSAL
    every = slice(0, length)
    mask = window.block(every, every, Grid(length, length, 2, query.device))
    return (Tile(ALL, ALL, ALL, mask),)


class _Permuted(torch.autograd.Function):
    """Rows in another order; a permutation's gradient is the inverse one, not a sum."""

    @staticmethod
    def forward(x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        return x.index_select(0, order)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.order, ctx.inverse = inputs[1], inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Permuted.apply(gradient, ctx.inverse, ctx.order), None, None
