"""Graph attention against the papers' equations and against torch_geometric."""

import warnings

import pytest
import torch

from regard.layers import GraphAttention, with_self_loops
from tests.layers.graph.graphs import (
    HEADS,
    IN,
    OUT,
    SCORES,
    N,
    layer_of,
    node_features,
    random_graph,
)

with warnings.catch_warnings():  # its import uses a deprecated part of torch
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv, GATv2Conv


def longhand_score(layer: GraphAttention, nodes, i: int, j: int, head: int):
    part = slice(head * OUT, (head + 1) * OUT)
    score, source = layer.score, layer.value.weight[part] @ nodes[j]
    if isinstance(score, torch.nn.Module) and hasattr(score, "vector"):  # Brody 2022, eq. 7
        target = score.target.weight[part] @ nodes[i] + score.target.bias[part]
        both = target + source
        return score.vector[head] @ torch.where(both > 0, both, 0.3 * both)
    both = score.target[head] @ (layer.value.weight[part] @ nodes[i]) + score.source[head] @ source
    return torch.where(both > 0, both, 0.3 * both)  # Veličković 2018, eq. 3


@pytest.mark.parametrize("combine", ["concat", "mean"])
@pytest.mark.parametrize("score", SCORES)
def test_it_is_the_papers_equations(score, combine):
    layer = layer_of(score, combine=combine, negative_slope=0.3)
    nodes, edges = node_features(), random_graph()
    rows, weights = [], torch.zeros(edges.shape[1], HEADS, dtype=torch.float64)
    for i in range(N):
        incoming = (edges[1] == i).nonzero().flatten().tolist()
        heads = []
        for head in range(HEADS):
            part = slice(head * OUT, (head + 1) * OUT)
            context = torch.zeros(OUT, dtype=torch.float64)
            if incoming:
                raised = [
                    longhand_score(layer, nodes, i, int(edges[0, e]), head).exp() for e in incoming
                ]
                for e, value in zip(incoming, raised, strict=True):
                    weights[e, head] = (value / sum(raised)).item()
                    source = layer.value.weight[part] @ nodes[edges[0, e]]
                    context = context + value / sum(raised) * source
            heads.append(context)
        rows.append(torch.cat(heads) if combine == "concat" else sum(heads) / HEADS)
    expected = torch.stack(rows) + layer.bias
    output, map = layer(nodes, edges, return_map=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map, weights)


def oracle_of(layer: GraphAttention, score: str, combine: str) -> torch.nn.Module:
    """torch_geometric's layer with the same parameters."""
    make = GATConv if score == "gat" else GATv2Conv
    concat = combine == "concat"
    oracle = make(IN, OUT, HEADS, concat=concat, negative_slope=0.3, add_self_loops=False).double()
    with torch.no_grad():
        oracle.bias.copy_(layer.bias)
        if score == "gat":
            oracle.lin.weight.copy_(layer.value.weight)
            oracle.att_dst.copy_(layer.score.target.unsqueeze(0))
            oracle.att_src.copy_(layer.score.source.unsqueeze(0))
        else:
            oracle.lin_l.weight.copy_(layer.value.weight)
            oracle.lin_l.bias.zero_()
            oracle.lin_r.weight.copy_(layer.score.target.weight)
            oracle.lin_r.bias.copy_(layer.score.target.bias)
            oracle.att.copy_(layer.score.vector.unsqueeze(0))
    return oracle


def parameter_gradients(module: torch.nn.Module, score: str) -> list[torch.Tensor]:
    """In the order of the layer's and the oracle's corresponding parameters."""
    if isinstance(module, GraphAttention):
        score_parameters = (
            [module.score.target, module.score.source]
            if score == "gat"
            else [module.score.target.weight, module.score.target.bias, module.score.vector]
        )
        parameters = [module.bias, module.value.weight, *score_parameters]
    elif score == "gat":
        parameters = [module.bias, module.lin.weight, module.att_dst, module.att_src]
    else:
        parameters = [module.bias, module.lin_l.weight, module.lin_r.weight, module.lin_r.bias]
        parameters.append(module.att)
    return [parameter.grad.squeeze(0) for parameter in parameters]


@pytest.mark.parametrize("combine", ["concat", "mean"])
@pytest.mark.parametrize("score", SCORES)
def test_it_gives_torch_geometrics_numbers_and_gradients(score, combine):
    layer, nodes = layer_of(score, combine=combine, negative_slope=0.3), node_features()
    edges = with_self_loops(random_graph(), N)
    oracle, other = oracle_of(layer, score, combine), nodes.detach().clone().requires_grad_()
    output, weights = layer(nodes, edges, return_map=True)
    expected, (_, alpha) = oracle(other, edges, return_attention_weights=True)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(weights, alpha, rtol=1e-10, atol=1e-12)
    pull, pull_weights = torch.randn_like(output), torch.randn_like(weights)
    ((output * pull).sum() + (weights * pull_weights).sum()).backward()
    ((expected * pull).sum() + (alpha * pull_weights).sum()).backward()
    torch.testing.assert_close(nodes.grad, other.grad, rtol=1e-9, atol=1e-11)
    for got, want in zip(
        parameter_gradients(layer, score), parameter_gradients(oracle, score), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)


def test_repeated_edges_and_isolated_nodes_are_torch_geometrics():
    layer, nodes, edges = layer_of(negative_slope=0.3), node_features(), random_graph()
    assert edges.unique(dim=1).shape[1] < edges.shape[1]
    expected = oracle_of(layer, "gat", "concat")(nodes, edges)
    output = layer(nodes, edges)
    torch.testing.assert_close(output, expected)
    assert torch.equal(output[0], layer.bias)


def test_self_loops_are_added_as_torch_geometric_adds_them():
    layer, nodes, edges = layer_of(negative_slope=0.3), node_features(), random_graph()
    edges[:, 3] = 7  # one that is there already moves to the end
    oracle = oracle_of(layer, "gat", "concat")
    oracle.add_self_loops = True
    expected, (loops, _) = oracle(nodes, edges, return_attention_weights=True)
    assert torch.equal(with_self_loops(edges, N), loops)
    torch.testing.assert_close(layer(nodes, with_self_loops(edges, N)), expected)


def test_a_bias_on_torch_geometrics_values_folds_into_ours():
    layer, nodes, edges = layer_of("gatv2", negative_slope=0.3), node_features(), random_graph()
    oracle = oracle_of(layer, "gatv2", "concat")
    torch.nn.init.normal_(oracle.lin_l.bias)
    with torch.no_grad():  # weights sum to one, so it passes through
        layer.score.target.bias += oracle.lin_l.bias
        layer.bias += oracle.lin_l.bias
    got, expected = layer(nodes, edges), oracle(nodes, edges)
    read = edges[1].unique()  # without an edge, torch_geometric adds only one of the two
    torch.testing.assert_close(got[read], expected[read])
