"""Attention over a graph: each node attends to its neighbours."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Attended, observer
from regard.attention.dispatch import by_path, dispatch
from regard.attention.observer import observed
from regard.attention.record import CallRecord
from regard.core.blocks import by_rows
from regard.core.mask import Mask
from regard.core.request import Request, make_request
from regard.core.score import Score
from regard.layers.checks import check_dropout, check_sizes
from regard.layers.dropout import drop
from regard.layers.edges import (
    check_edges,
    edge_map,
    edge_scores,
    edge_softmax,
    edge_sum,
    zero_isolated,
)


class AttendedEdges(NamedTuple):
    """The new nodes, and the weights of the edges, (E, heads), in their order."""

    output: Tensor
    map: Tensor


class GAT(nn.Module):
    """Score an edge by a linear form of both nodes. Veličković et al. 2018, eq. 3.

        e(i, j) = LeakyReLU(aᵀ [W hᵢ ‖ W hⱼ]) = LeakyReLU(a₁·W hᵢ + a₂·W hⱼ)

    The sum is split: each node is scored once, and an edge adds two numbers. All targets rank
    their sources in the same order; `GATv2` lifts this restriction.
    """

    def __init__(self, out_dim: int, heads: int, *, negative_slope: float) -> None:
        super().__init__()
        self.target = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, out_dim)))
        self.source = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, out_dim)))
        self.negative_slope = negative_slope

    def of_nodes(self, nodes: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """One number per node and head: query and key (N, heads, 1) of value (N, heads, dim)."""
        query = (value * self.target).sum(-1, keepdim=True)
        key = (value * self.source).sum(-1, keepdim=True)
        return query, key

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """(..., heads, M, 1), (..., heads, N, 1) -> (..., heads, M, N)."""
        return F.leaky_relu(query + key.transpose(-1, -2), self.negative_slope)


class GATv2(nn.Module):
    """Score an edge by a one-layer network of both nodes. Brody et al. 2022, eq. 7.

        e(i, j) = aᵀ LeakyReLU(W₁ hᵢ + W₂ hⱼ)

    W₂ hⱼ is also the value of node j; W₁ belongs to the score.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        heads: int,
        *,
        negative_slope: float = 0.2,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.target = nn.Linear(in_dim, heads * out_dim, bias=bias)
        self.vector = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, out_dim)))
        self.negative_slope = negative_slope
        nn.init.xavier_uniform_(self.target.weight)

    def of_nodes(self, nodes: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Query W₁ h and key W₂ h, (N, heads, dim)."""
        return self.target(nodes).view_as(value), value

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """(..., heads, M, dim), (..., heads, N, dim) -> (..., heads, M, N)."""

        def rows(block: Tensor, _: slice) -> Tensor:
            pairs = block.unsqueeze(-2) + key.unsqueeze(-3)  # (..., heads, rows, N, dim)
            pairs = F.leaky_relu(pairs, self.negative_slope, inplace=self.negative_slope >= 0)
            return torch.einsum("...hmnd,hd->...hmn", pairs, self.vector)

        return by_rows(rows, query, elements=key.numel())


SCORES = ("gat", "gatv2")

COMBINE: dict[str, Callable[[Tensor], Tensor]] = {
    "concat": lambda heads: heads.flatten(-2),
    "mean": lambda heads: heads.mean(-2),
}
"""How heads (N, heads, out_dim) are combined: concatenated, or averaged."""


class GraphAttention(nn.Module):
    """Each node becomes the average of its neighbours, weighted by attention.

        h'ᵢ = Σⱼ softmaxⱼ(e(i, j)) · W hⱼ,  over the edges j → i

    Veličković et al. 2018, eq. 2-6, with the score of that paper ("gat") or of Brody et al. 2022
    ("gatv2"). A node without incoming edges gives the bias, which starts at zero. An edge listed
    twice counts twice. Self-loops are not added: see `with_self_loops`. A batch of graphs is one
    graph with several components.

    >>> layer = GraphAttention(5, 7, heads=3)
    >>> edges = torch.tensor([[0, 1, 2], [1, 0, 0]])  # 0 → 1, 1 → 0, 2 → 0
    >>> output, weights = layer(torch.randn(4, 5), edges, return_map=True)
    >>> output.shape, weights.shape
    (torch.Size([4, 21]), torch.Size([3, 3]))

    Args:
        in_dim: width of a node
        out_dim: width of one head's output
        heads: number of heads
        score: "gat", "gatv2", or any score of `attend`, which gets W h as query and key,
            (..., M, out_dim) and (..., N, out_dim); a module with a method
            `of_nodes(nodes, value) -> (query, key)` computes its own
        combine: "concat", heads · out_dim wide, or "mean", for a last layer (eq. 6)
        negative_slope: of the LeakyReLU in "gat" and "gatv2"; 0.2 if None
        dropout: of the weights, in train mode
        value_dropout: of W h, in train mode, after the scores were computed, as in the authors'
            program
        bias: whether to add a learned vector to the output, and inside "gatv2"
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        heads: int = 1,
        *,
        score: str | Score = "gat",
        combine: str = "concat",
        negative_slope: float | None = None,
        dropout: float = 0.0,
        value_dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(in_dim=in_dim, out_dim=out_dim, heads=heads)
        check_dropout(dropout)
        check_dropout(value_dropout, "value_dropout")
        if combine not in COMBINE:
            raise ValueError(f"combine should be one of {', '.join(COMBINE)}, got {combine!r}")
        if isinstance(score, str):
            if score not in SCORES:
                raise ValueError(
                    f"score should be one of {', '.join(SCORES)}, a score module or a callable "
                    f"(query, key) -> scores, got {score!r}"
                )
            slope = 0.2 if negative_slope is None else negative_slope
            if score == "gat":
                score = GAT(out_dim, heads, negative_slope=slope)
            else:
                score = GATv2(in_dim, out_dim, heads, negative_slope=slope, bias=bias)
        elif negative_slope is not None:
            raise ValueError("negative_slope is an option of score='gat' and score='gatv2'")
        self.in_dim, self.out_dim, self.heads = in_dim, out_dim, heads
        self.value = nn.Linear(in_dim, heads * out_dim, bias=False)
        self.score = score
        self.combine = combine
        self.dropout, self.value_dropout = dropout, value_dropout
        width = out_dim if combine == "mean" else heads * out_dim
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        nn.init.xavier_uniform_(self.value.weight)

    @observed
    def forward(
        self,
        nodes: Tensor,
        edges: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        return_map: bool = False,
    ) -> Tensor | AttendedEdges | Attended:
        """Attend along the edges, or, without an edge list, wherever the mask allows.

        Args:
            nodes: (N, in_dim)
            edges: (2, E), edge e from node edges[0, e] to edges[1, e], which attends to it
            mask: instead of edges: a Mask or bool (N, N), True where node i may attend to j
            return_map: also return the weights

        Returns: (N, heads · out_dim), or (N, out_dim) with combine="mean"; with return_map
            `AttendedEdges(output, map)` with weights (E, heads) in the order of the edges, or
            `Attended(output, map)` with a lazy map (heads, N, N).
        """
        self._check(nodes, edges, mask)
        nodes = zero_isolated(nodes, edges, mask)
        value = self.value(nodes).unflatten(-1, (self.heads, self.out_dim))  # (N, heads, dim)
        if edges is not None and not len(nodes):
            empty = self._combined(value)
            return AttendedEdges(empty, value[..., 0]) if return_map else empty
        of_nodes = getattr(self.score, "of_nodes", None)
        query, key = (value, value) if of_nodes is None else of_nodes(nodes, value)
        value = drop(value, self.value_dropout, self.training)
        dropout = self.dropout if self.training else 0.0
        if edges is None:
            request = self._request(query, key, value, mask, dropout)
            attended = dispatch(request, by_path, return_map=return_map)
            if isinstance(attended, Attended):
                return Attended(self._combined(attended.output.transpose(0, 1)), attended.map)
            return self._combined(attended.transpose(0, 1))
        source, target = edges
        scores = edge_scores(self.score, query, key, target, source)
        if observer.observing and observer.any_edits(observer.observers()):
            scores = self._edited(scores, query, key, value, edges)
        weights = edge_softmax(scores, target, nodes.shape[0])  # (E, heads)
        kept = drop(weights, dropout, True)
        context = edge_sum(kept, value.to(weights.dtype), target, source, nodes.shape[0])
        if observer.observing:
            self._notify(weights, value, context, target, source)
        output = self._combined(context.to(value.dtype))
        return AttendedEdges(output, weights.to(value.dtype)) if return_map else output

    def _notify(
        self, weights: Tensor, value: Tensor, context: Tensor, target: Tensor, source: Tensor
    ) -> None:
        """Notify observers, with a lazy map (heads, N, N) and the weights of the edges."""
        nodes, by_heads = value.shape[0], value.transpose(0, 1)  # (heads, N, dim)
        call = CallRecord(
            by_heads,
            context.transpose(0, 1),
            (self.heads, nodes, nodes),
            "edges",
            None,
            lambda _: edge_map(weights, target, source, nodes),
            None
            if self.training and self.dropout
            else lambda _, rows, __: rows @ by_heads.to(rows.dtype),
            weights=weights,
            has_batch=False,
        )
        observer.notify(observer.observers(), call)

    def _request(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | Tensor | None = None,
        dropout: float = 0.0,
    ) -> Request:
        """The request over (heads, N, dim), without a batch."""
        three = (each.transpose(0, 1) for each in (query, key, value))
        request = make_request(*three, score=self.score, mask=mask, dropout=dropout)
        return replace(request, has_batch=False)

    def _edited(
        self, scores: Tensor, query: Tensor, key: Tensor, value: Tensor, edges: Tensor
    ) -> Tensor:
        """Scores (E, heads) with −inf at the edges that observers hide."""
        request = self._request(query, key, value)
        request = observer.edit_request(observer.observers(), request)
        if request.edit_output is not None:
            raise ValueError(
                "outputs of a graph's edges cannot be edited; hide cells, or use mask="
            )
        visible = request.visible(slice(0, request.queries))
        if visible is None:
            return scores
        source, target = edges
        shown = visible.expand(*visible.shape[:-2], len(value), len(value))[..., target, source]
        return scores.masked_fill(~shown.reshape(-1, edges.shape[1]).T, -torch.inf)

    def _combined(self, context: Tensor) -> Tensor:
        """(N, heads, out_dim) to the output."""
        output = COMBINE[self.combine](context)
        return output if self.bias is None else output + self.bias

    def _check(self, nodes: Tensor, edges: Tensor | None, mask: Mask | Tensor | None) -> None:
        if nodes.dim() != 2 or nodes.shape[1] != self.in_dim:
            raise ValueError(f"nodes should be (N, {self.in_dim}), got {tuple(nodes.shape)}")
        if (edges is None) == (mask is None):
            got = "neither" if edges is None else "both"
            raise ValueError(f"GraphAttention takes either edges or a mask, got {got}")
        if edges is None:
            return
        check_edges(edges, nodes.shape[0])
        if not edges.shape[1] and len(nodes):
            raise ValueError(
                f"the graph has {len(nodes)} nodes and no edges; to let each node attend to "
                f"itself, pass with_self_loops(edges, {len(nodes)})"
            )

    def extra_repr(self) -> str:
        return f"{self.in_dim}, {self.out_dim}, heads={self.heads}, combine={self.combine!r}"
