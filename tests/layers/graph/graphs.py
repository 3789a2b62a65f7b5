"""A random graph and a layer for it."""

import torch

from regard.layers import GraphAttention

N, IN, OUT, HEADS = 11, 5, 3, 2
SCORES = ["gat", "gatv2"]


def random_graph(edges: int = 29, nodes: int = N, seed: int = 0) -> torch.Tensor:
    """Node 0 has no incoming edge, and edges repeat."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(nodes, (edges,), generator=generator)
    target = torch.randint(1, nodes, (edges,), generator=generator)
    graph = torch.stack((source, target))
    graph[:, -1] = graph[:, 0]
    return graph


def as_mask(edges: torch.Tensor, nodes: int) -> torch.Tensor:
    mask = torch.zeros(nodes, nodes, dtype=torch.bool)
    mask[edges[1], edges[0]] = True
    return mask


def layer_of(score="gat", **options) -> GraphAttention:
    torch.manual_seed(1)
    layer = GraphAttention(IN, OUT, HEADS, score=score, **options).double()
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    return layer


def node_features(nodes: int = N) -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(nodes, IN, dtype=torch.float64, requires_grad=True)
