"""The graph attention network: classify nodes from their features and their neighbours'."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.score import Score
from regard.layers.checks import check_dropout, check_sizes
from regard.layers.dropout import drop
from regard.layers.edges import with_self_loops
from regard.layers.graph import GraphAttention


class GraphAttentionNetwork(nn.Module):
    """Classify every node of a graph. Veličković et al. 2018, section 3.3.

        h⁰ = x,  hˡ⁺¹ = ELU(‖ₕ Σⱼ αʰ(i, j) Wʰ hˡⱼ),  logits = meanₕ Σⱼ αʰ(i, j) Wʰ hᴸ⁻¹ⱼ

    Heads are concatenated in every layer but the last, which averages them. A node always attends
    to itself, too. Features may be sparse (COO): a bag of words then costs only its non-zeros.

    >>> model = GraphAttentionNetwork(11, 3, hidden=5, heads=2)
    >>> edges = torch.tensor([[0, 1], [1, 0]])
    >>> model(torch.randn(7, 11), edges).shape
    torch.Size([7, 3])

    Args:
        in_dim: features of a node
        classes: number of classes
        hidden: width of one head, in all layers but the last
        heads: number of heads, in all layers but the last
        output_heads: number of heads of the last layer
        layers: number of layers, the number of edges over which information travels
        score: "gat", "gatv2", or any score of `GraphAttention`
        dropout: of the input of each layer and of the values along its edges, in train mode, the
            latter as in the authors' program
        attention_dropout: of the weights of the edges, in train mode
    """

    def __init__(
        self,
        in_dim: int,
        classes: int,
        *,
        hidden: int = 8,
        heads: int = 8,
        output_heads: int = 1,
        layers: int = 2,
        score: str | Score = "gat",
        dropout: float = 0.6,
        attention_dropout: float = 0.6,
    ) -> None:
        super().__init__()
        check_sizes(in_dim=in_dim, classes=classes, hidden=hidden, layers=layers)
        check_dropout(dropout)
        widths = [in_dim] + [hidden * heads] * (layers - 1)
        options: dict[str, Any] = {
            "score": score,
            "dropout": attention_dropout,
            "value_dropout": dropout,
        }
        made = [GraphAttention(width, hidden, heads, **options) for width in widths[:-1]]
        last = GraphAttention(widths[-1], classes, output_heads, combine="mean", **options)
        self.layers = nn.ModuleList([*made, last])
        self.in_dim, self.dropout = in_dim, dropout

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes, (N, classes).

        Observers get the weights of the edges as `call.weights`, (E', heads), in the order of
        `with_self_loops(edges, N)`.

        Args:
            nodes: (N, in_dim), dense or sparse COO
            edges: (2, E), from the node that is attended to, to the node that attends
        """
        if nodes.dim() != 2 or nodes.shape[1] != self.in_dim:
            raise ValueError(f"nodes should be (N, {self.in_dim}), got {tuple(nodes.shape)}")
        edges = with_self_loops(edges, nodes.shape[0])
        x = nodes
        for index, layer in enumerate(self.layers):
            x = _dropped(x if index == 0 else F.elu(x), self.dropout if self.training else 0.0)
            x = layer(x, edges)
        return x

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


def _dropped(x: Tensor, dropout: float) -> Tensor:
    """Dropout; of a sparse tensor only the stored entries, which gives the same distribution."""
    if not x.is_sparse:
        return drop(x, dropout, True)
    x = x.coalesce()
    values = drop(x.values(), dropout, True)
    return torch.sparse_coo_tensor(
        x.indices(), values, x.shape, is_coalesced=True, check_invariants=False
    )
