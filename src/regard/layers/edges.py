"""Attention along the edges of a graph: scores, softmax and weighted sum over an edge list.

Edge e goes from node source[e], the key and value, to node target[e], the query, as in `attend`
with only the listed pairs. Edges are processed in blocks, which never hold E × heads × dim numbers
at once and fit in the processor's cache.
"""

from typing import Any

import torch
from torch import Tensor

from regard.core.blocks import BLOCK_ELEMENTS, by_rows, can_inspect_values, in_functorch
from regard.core.map import AttentionMap
from regard.core.mask import Grid, Mask, visible
from regard.core.request import is_moderate
from regard.core.score import Score

CACHED_ELEMENTS = 2**19
"""Numbers that a block of edges gathers at once: 2 MB in float32."""


def with_self_loops(edges: Tensor, nodes: int) -> Tensor:
    """The edges with exactly one loop per node, after all others.

    >>> with_self_loops(torch.tensor([[0, 1, 1], [1, 1, 0]]), 2)
    tensor([[0, 1, 0, 1],
            [1, 0, 0, 1]])

    Args:
        edges: (2, E); loops already among them move to the end
        nodes: number of nodes

    Returns: (2, E')
    """
    check_edges(edges, nodes)
    loops = torch.arange(nodes, device=edges.device, dtype=edges.dtype)
    # without values the number of loops is unknown: assume none
    others = edges if not can_inspect_values(edges) else edges[:, edges[0] != edges[1]]
    return torch.cat((others, loops.expand(2, nodes)), dim=1)


def check_edges(edges: Tensor, nodes: int) -> None:
    """Raise unless `edges` is (2, E) with integers from 0 to nodes − 1."""
    if edges.dim() != 2 or edges.shape[0] != 2:
        hint = "; transpose it: edges.T" if edges.dim() == 2 and edges.shape[1] == 2 else ""
        raise ValueError(
            f"edges should be (2, E), sources in row 0 and targets in row 1, "
            f"got {tuple(edges.shape)}{hint}"
        )
    if edges.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"edges should be node numbers in torch.int64, got {edges.dtype}; "
            f"a boolean (N, N) adjacency goes in mask="
        )
    if not edges.numel() or not can_inspect_values(edges):
        return  # a tensor without values; torch itself checks the range in compiled code
    low, high = (int(end) for end in edges.aminmax())
    if low < 0 or high >= nodes:
        raise ValueError(f"edges should be node numbers from 0 to {nodes - 1}, got {low} to {high}")


def zero_isolated(nodes: Tensor, edges: Tensor | None, mask: Mask | Tensor | None) -> Tensor:
    """The nodes (N, dim) with zeros for nodes without an edge, whose NaN must not reach a gradient.

    Sparse nodes stay as they are.
    """
    if nodes.layout != torch.strided or is_moderate(nodes):
        return nodes
    if edges is not None:
        connected = torch.zeros(nodes.shape[0], dtype=torch.bool, device=nodes.device)
        connected = connected.index_fill(0, edges.flatten(), True)
    else:
        assert mask is not None
        mask = mask if isinstance(mask, Mask) else visible(mask)
        grid = Grid(len(nodes), len(nodes), 1, nodes.device)
        mask.check(grid)
        connected = (mask.seen(grid) | mask.seeing(grid)).view(-1, len(nodes)).any(0)
    return torch.where(connected.unsqueeze(-1), nodes, 0.0)


def edge_scores(score: Score, query: Tensor, key: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """Scores of the edges: f(q, k) for each pair of target and source.

    Args:
        score: any score of `attend`: (..., 1, Dq), (..., 1, Dk) -> (..., 1, 1)
        query: (nodes, heads, Dq)
        key: (nodes, heads, Dk)
        target: (E,), the query of each edge
        source: (E,), the key of each edge

    Returns: (E, heads)
    """
    nodes, heads, width = key.shape

    def pairs(target: Tensor, source: Tensor, _: slice | None = None) -> Tensor:
        q = query.index_select(0, target.flatten()).unsqueeze(-2)  # (E, heads, 1, Dq)
        k = key.index_select(0, source.flatten()).unsqueeze(-2)  # (E, heads, 1, Dk)
        scores = score(q, k)
        if scores.shape != (*q.shape[:2], 1, 1):
            raise ValueError(
                f"the score should return {(*q.shape[:2], 1, 1)} for query {tuple(q.shape)} and "
                f"key {tuple(k.shape)}, got {tuple(scores.shape)}"
            )
        return scores.flatten(1)  # (E, heads)

    if torch.compiler.is_compiling():
        return pairs(target, source)
    # in backward each block allocates a gradient of all nodes, so no block is smaller than that
    each = heads * (query.shape[-1] + width)
    budget = max(BLOCK_ELEMENTS, nodes * each)
    return by_rows(pairs, target.unsqueeze(-1), source.unsqueeze(-1), elements=each, budget=budget)


def edge_softmax(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
    """Softmax over the edges that end in the same node. Veličković et al. 2018, eq. 2.

        w(e) = exp(s(e)) / Σ exp(s(e')), over all e' with target(e') = target(e)

    >>> edge_softmax(torch.zeros(3, 1), torch.tensor([0, 1, 0]), nodes=2)
    tensor([[0.5000],
            [1.0000],
            [0.5000]])

    Args:
        scores: (E, heads); −inf hides an edge
        target: (E,)

    Returns: weights in the order of the edges, (E, heads), in float32 or better
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    floor = torch.finfo(scores.dtype).min  # so that −inf − max is never −inf + inf
    place = target.unsqueeze(-1).expand_as(scores)
    top = scores.new_full((nodes, scores.shape[1]), floor)
    top = top.scatter_reduce(0, place, scores.detach(), "amax")  # (nodes, heads)
    risen = (scores - top.index_select(0, target)).exp()
    total = risen.new_zeros(top.shape).index_add(0, target, risen)
    # the largest adds exactly 1; if every edge is hidden, the sum and all weights are 0
    return risen / total.masked_fill(total == 0, 1.0).index_select(0, target)


def edge_sum(weights: Tensor, value: Tensor, target: Tensor, source: Tensor, nodes: int) -> Tensor:
    """Σ w(e) · v(source(e)) for each target, 0 where no edge ends. Veličković 2018, eq. 4.

    Args:
        weights: (E, heads)
        value: (sources, heads, dim)
        target: (E,)
        source: (E,)
        nodes: number of targets

    Returns: (nodes, heads, dim)
    """
    if torch.compiler.is_compiling() or in_functorch():
        message = weights.unsqueeze(-1) * value.index_select(0, source)  # (E, heads, dim)
        return value.new_zeros(nodes, *value.shape[1:]).index_add(0, target, message)
    result = _EdgeSum.apply(weights, value, target, source, nodes)
    assert isinstance(result, Tensor)
    return result


def edge_map(weights: Tensor, target: Tensor, source: Tensor, nodes: int) -> AttentionMap:
    """The weights of edges as a lazy map of all pairs of nodes, zero for pairs without an edge.

    >>> edge_map(torch.tensor([[0.25], [0.75]]), torch.tensor([1, 1]), torch.tensor([0, 1]), 2)[0]
    tensor([[0.0000, 0.0000],
            [0.2500, 0.7500]])

    Args:
        weights: (E, heads)
        target: (E,)
        source: (E,)

    Returns: (heads, nodes, nodes); an edge that is listed twice counts twice
    """
    heads = weights.shape[1]
    target, source = target.clone(), source.clone()  # the user may change the edges

    def rows(some: slice) -> Tensor:
        (inside,) = torch.nonzero((target >= some.start) & (target < some.stop), as_tuple=True)
        found = weights.new_zeros(some.stop - some.start, nodes, heads)
        place = (target[inside] - some.start, source[inside])
        return found.index_put(place, weights[inside], accumulate=True).movedim(-1, 0)

    return AttentionMap(rows, None, (heads, nodes, nodes))


class _EdgeSum(torch.autograd.Function):
    """out(i) = Σ w(e) v(j). Its gradients are an `_EdgeDot` and an `_EdgeSum` of their own."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, value: Tensor, target: Tensor, source: Tensor, nodes: int
    ) -> Tensor:
        ctx.save_for_backward(weights, value, target, source)
        output = value.new_zeros(nodes, *value.shape[1:])
        block = _block(value)
        parts = zip(weights.split(block), target.split(block), source.split(block), strict=True)
        for weight, i, j in parts:
            output.index_add_(0, i, value.index_select(0, j).mul_(weight.unsqueeze(-1)))
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, value, target, source = ctx.saved_tensors
        gradient = gradient.contiguous()
        for_weights = for_value = None
        if ctx.needs_input_grad[0]:
            for_weights = _EdgeDot.apply(gradient, value, target, source)
        if ctx.needs_input_grad[1]:
            for_value = _EdgeSum.apply(weights, gradient, source, target, len(value))
        return for_weights, for_value, None, None, None


class _EdgeDot(torch.autograd.Function):
    """out(e) = l(i) · r(j): what the gradient of a weight is. Its gradients are `_EdgeSum`s."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, target: Tensor, source: Tensor) -> Tensor:
        ctx.save_for_backward(left, right, target, source)
        output = left.new_empty(len(target), left.shape[1])
        block = _block(left)
        parts = zip(output.split(block), target.split(block), source.split(block), strict=True)
        for out, i, j in parts:
            torch.sum(left.index_select(0, i).mul_(right.index_select(0, j)), -1, out=out)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right, target, source = ctx.saved_tensors
        for_left = for_right = None
        if ctx.needs_input_grad[0]:
            for_left = _EdgeSum.apply(gradient, right, target, source, len(left))
        if ctx.needs_input_grad[1]:
            for_right = _EdgeSum.apply(gradient, left, source, target, len(right))
        return for_left, for_right, None, None


def _block(value: Tensor) -> int:
    """Number of edges of a block."""
    return max(1, CACHED_ELEMENTS // max(1, value[0].numel()))
