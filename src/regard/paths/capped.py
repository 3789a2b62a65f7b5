"""The capped path: softmax of soft-capped dot products, in tiles that stay in the cache.

A tile has all visible keys of its rows: passes over the product of queries and keys in place, and
the product with the values. Backward computes the tiles again. Tiles that a mask hides are skipped.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.blocks import in_functorch
from regard.core.elementwise import SoftCap
from regard.core.lower import DotScore, dot_form, is_dot
from regard.core.normalize import Normalizer, as_softmax, over_heads
from regard.core.request import Request
from regard.core.score import precise
from regard.paths.additive import flat
from regard.paths.blockwise import blockwise
from regard.paths.kernels.custom_operator import differentiable_copies
from regard.paths.tile_attention import runs_kernels

CELLS = 1 << 21  # of one tile: 8 MB in float32


def unsupported_reason(request: Request) -> str | None:
    """Why this path cannot compute a request, or None."""
    score, form = request.score, as_softmax(request.normalize)
    if not isinstance(score, SoftCap) or not is_dot(score.score):
        return "the score is not a soft-capped dot product"
    if form is None:
        return "the normalizer is not softmax"
    if isinstance(form.temperature, Tensor):
        return "the temperature is a tensor"
    if request.dropout:
        return "dropout is not fused"
    if request.bias is not None:
        return "a bias is added"
    if in_functorch():
        return "torch.func or forward-mode AD is active"
    if not runs_kernels(request.query):
        return "it writes to CPU memory in place"
    return None


class RowBlock(NamedTuple):
    """A part of the map: entries of the flat batch, rows and keys."""

    batch: slice
    rows: slice
    keys: slice
    visible: Tensor | None  # bool that broadcasts to (batch, rows, keys); None: all of it

    @property
    def queries(self) -> tuple[slice, slice]:
        return self.batch, self.rows

    @property
    def columns(self) -> tuple[slice, slice]:
        return self.batch, self.keys


class Numbers(NamedTuple):
    """Scores cap · tanh(scale · q · k) of a request whose tensors are flat."""

    request: Request
    scale: float
    cap: float


def capped(request: Request) -> Tensor:
    """softmax(c · tanh(s / c), mask) V, (..., M, Dv)."""
    score, form, leading = request.score, as_softmax(request.normalize), request.leading
    assert isinstance(score, SoftCap)
    assert form is not None
    assert not isinstance(form.temperature, Tensor)
    query, key, scale = dot_form(replace(request, score=score.score))
    sink = None
    if form.sink is not None:
        sink = over_heads(form.sink, query).expand(*leading, 1, 1).reshape(-1, 1)
    tensors = [flat(t.to(precise(t.dtype)), leading) for t in (query, key, request.value)]
    numbers = Numbers(request, scale / score.cap, score.cap / form.temperature)
    output = _Capped.apply(*tensors, sink, numbers)
    return output.to(query.dtype).view(*leading, *output.shape[1:])


class _Capped(torch.autograd.Function):
    """The tiles, with their own backward pass."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sink: Tensor | None, numbers: Numbers
    ) -> Tensor:
        output, shares = _context(query, key, value, sink, numbers)
        ctx.save_for_backward(query, key, value, sink, output, shares)
        ctx.numbers = numbers
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        gradients = _differentiable if torch.is_grad_enabled() else _gradients
        return *gradients(grad, ctx.saved_tensors, ctx.numbers), None


def _context(
    query: Tensor, key: Tensor, value: Tensor, sink: Tensor | None, numbers: Numbers
) -> tuple[Tensor, Tensor | None]:
    """The output (B, M, E), and the share of each row that a sink leaves, (B, M)."""
    output = query.new_zeros(*query.shape[:2], value.shape[2])
    shares = None if sink is None else query.new_zeros(query.shape[:2])
    for tile, (scores,) in _tiles(query, key, numbers, buffers=1):
        scores.tanh_().mul_(numbers.cap)
        _hide(scores, tile, -math.inf)
        out = output[tile.queries]
        if shares is not None:
            assert sink is not None
            shares[tile.queries] = torch.sigmoid(scores.logsumexp(-1) - sink[tile.batch])
        torch.bmm(_softmax(scores, tile), value[tile.columns], out=out)
        if shares is not None:
            out.mul_(shares[tile.queries].unsqueeze(-1))
    return output, shares


def _gradients(grad: Tensor, saved: Sequence[Any], numbers: Numbers) -> tuple[Tensor | None, ...]:
    """The gradients of query, key, value and sink, from what `forward` saved."""
    query, key, value, sink, output, shares = saved
    dq, dk, dv = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    mean = torch.linalg.vecdot(grad, output)  # (B, M)
    dsink = None
    if sink is not None:
        dsink = torch.linalg.vecdot(shares - 1, mean).unsqueeze(-1)
        grad, mean = grad * shares.unsqueeze(-1), mean * shares
    alpha = numbers.scale * numbers.cap
    for tile, (tanh, weights, gradients) in _tiles(query, key, numbers, buffers=3):
        torch.mul(tanh.tanh_(), numbers.cap, out=weights)
        _hide(weights, tile, -math.inf)
        _softmax(weights, tile)
        above = grad[tile.queries]
        torch.baddbmm(gradients, above, value[tile.columns].mT, beta=0, out=gradients)
        gradients.sub_(mean[tile.queries].unsqueeze(-1)).mul_(weights)
        gradients.addcmul_(gradients, tanh.square_(), value=-1)
        _add_product(dv[tile.columns], weights.mT, above)
        _add_product(dq[tile.queries], gradients, key[tile.columns], alpha)
        _add_product(dk[tile.columns], gradients.mT, query[tile.queries], alpha)
    return dq, dk, dv, dsink


def _differentiable(
    grad: Tensor, saved: Sequence[Any], numbers: Numbers
) -> tuple[Tensor | None, ...]:
    """The same gradients by the blockwise path, for second derivatives."""
    sink = saved[3]
    inputs = differentiable_copies(tuple(saved[:3] if sink is None else saved[:4]))
    leading = numbers.request.leading
    q, k, v = (t.view(*leading, *t.shape[1:]) for t in inputs[:3])
    sinks = inputs[3].view(leading) if sink is not None else None
    plain = replace(
        numbers.request,
        query=q,
        key=k,
        value=v,
        score=SoftCap(numbers.cap, DotScore(numbers.scale * numbers.cap)),
        normalize=Normalizer(sink=sinks),
    )
    found = torch.autograd.grad(blockwise(plain).view_as(grad), inputs, grad, create_graph=True)
    return found if sink is not None else (*found, None)


def _tiles(
    query: Tensor, key: Tensor, numbers: Numbers, buffers: int
) -> Iterator[tuple[RowBlock, list[Tensor]]]:
    """The tiles in which some query sees some key, each with as many buffers of its size.

    The first of them holds scale · q · k.
    """
    request = numbers.request
    (count, queries), keys = query.shape[:2], key.shape[1]
    size = min(queries, max(16, CELLS // max(keys, 1)))
    several = min(count, max(1, CELLS // max(1, size * keys)))
    memory = [query.new_empty(several * size * keys) for _ in range(buffers)]
    for start in range(0, queries, size):
        rows = slice(start, min(start + size, queries))
        columns, visible = _seen(request, rows)
        if columns.start >= columns.stop:
            continue
        for first in range(0, count, several):
            batch = slice(first, min(first + several, count))
            own = visible if visible is None or len(visible) == 1 else visible[batch]
            tile = RowBlock(batch, rows, columns, own)
            q, k = query[tile.queries], key[tile.columns]
            shape = (len(q), q.shape[1], k.shape[1])
            cells = [buffer[: math.prod(shape)].view(shape) for buffer in memory]
            torch.baddbmm(cells[0], q, k.mT, beta=0, alpha=numbers.scale, out=cells[0])
            yield tile, cells


def _seen(request: Request, rows: slice) -> tuple[slice, Tensor | None]:
    """The keys outside of which some rows see nothing, and which of these they see."""
    if request.mask is None:
        return slice(0, request.keys), None
    low, high, _ = request.mask.key_range(request.grid)
    low, high = (t.expand(*t.shape[:-1], request.queries)[..., rows] for t in (low, high))
    low = torch.where(low < high, low, request.keys)
    columns = slice(int(low.amin()), int(high.amax()))
    if columns.start >= columns.stop:  # they see no key
        return columns, None
    visible = request.mask.block(rows, columns, request.grid)
    if bool(visible.all()):
        return columns, None
    if visible.shape[:-2].numel() > 1:
        return columns, flat(visible, request.leading)
    return columns, visible.reshape(1, *visible.shape[-2:])


def _hide(cells: Tensor, tile: RowBlock, value: float) -> None:
    if tile.visible is not None:
        cells.masked_fill_(~tile.visible, value)


def _softmax(scores: Tensor, tile: RowBlock) -> Tensor:
    """The weights, written over the scores; zeros in rows that see nothing."""
    torch.softmax(scores, -1, out=scores)
    if tile.visible is not None:
        scores.masked_fill_(~tile.visible.any(-1, keepdim=True), 0.0)
    return scores


def _add_product(total: Tensor, a: Tensor, b: Tensor, alpha: float = 1.0) -> None:
    """total += alpha · a b"""
    torch.baddbmm(total, a, b, alpha=alpha, out=total)
