"""Graph attention as a module: dtypes, compiling, copies, errors."""

import copy

import pytest
import torch

from regard.layers import GraphAttention
from tests.layers.graph.graphs import (
    HEADS,
    IN,
    OUT,
    SCORES,
    N,
    as_mask,
    layer_of,
    node_features,
    random_graph,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("score", SCORES)
def test_every_type_is_close_to_float64(score, dtype):
    layer, nodes, edges = layer_of(score), node_features().detach(), random_graph(997)
    exact = layer(nodes, edges)
    output, weights = layer.to(dtype)(nodes.to(dtype), edges, return_map=True)
    assert output.dtype == weights.dtype == dtype
    tolerance = 32 * torch.finfo(dtype).eps
    torch.testing.assert_close(output.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("score", SCORES)
def test_it_compiles_exports_copies_and_saves(score):
    layer, nodes, edges = layer_of(score), node_features().detach(), random_graph()
    expected = layer(nodes, edges)
    assert vars(layer).keys() == vars(layer_of(score)).keys()  # nothing stays on the layer
    other = layer_of(score)
    other.load_state_dict(layer.state_dict())
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    many = torch.export.Dim("many", min=2)
    exported = torch.export.export(layer, (nodes, edges), dynamic_shapes=(None, {1: many})).module()
    for module in (copy.deepcopy(layer), other, compiled, exported):
        torch.testing.assert_close(module(nodes, edges), expected)
    torch.testing.assert_close(exported(nodes, edges[:, :13]), layer(nodes, edges[:, :13]))
    compiled(nodes, edges).square().sum().backward()
    got = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    layer(nodes, edges).square().sum().backward()
    for one, parameter in zip(got, layer.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


def test_without_bias_there_is_none():
    layer = GraphAttention(IN, OUT, HEADS, score="gatv2", bias=False)
    assert not any("bias" in name for name in layer.state_dict())
    assert layer(torch.randn(N, IN), random_graph()).shape == (N, HEADS * OUT)


@pytest.mark.parametrize("combine", ["concat", "mean"])
def test_a_graph_without_nodes_gives_an_empty_result(combine):
    layer, nodes = GraphAttention(IN, OUT, HEADS, combine=combine), torch.zeros(0, IN)
    nodes.requires_grad_()
    width = OUT if combine == "mean" else HEADS * OUT
    edges = torch.zeros(2, 0, dtype=torch.long)
    output, weights = layer(nodes, edges, return_map=True)
    assert (output.shape, weights.shape) == ((0, width), (0, HEADS))
    output.sum().backward()
    assert nodes.grad.shape == (0, IN)
    assert layer(nodes, edges).shape == (0, width)
    assert layer(nodes, mask=torch.zeros(0, 0, dtype=torch.bool)).shape == (0, width)


@pytest.mark.parametrize(
    ("nodes", "edges", "error", "match"),
    [
        (torch.zeros(3, IN), torch.zeros(2, 0, dtype=torch.long), ValueError, "with_self_loops"),
        (torch.zeros(3, IN), torch.zeros(5, 2, dtype=torch.long), ValueError, r"edges\.T"),
        (torch.zeros(3, IN), torch.zeros(3, 5, dtype=torch.long), ValueError, r"\(2, E\)"),
        (torch.zeros(3, IN), torch.zeros(2, dtype=torch.long), ValueError, r"\(2, E\)"),
        (torch.zeros(3, IN), torch.zeros(2, 5), TypeError, "torch.float32"),
        (torch.zeros(3, IN), torch.zeros(2, 5, dtype=torch.bool), TypeError, "mask="),
        (torch.zeros(3, IN), torch.tensor([[0], [3]]), ValueError, "from 0 to 2, got 0 to 3"),
        (torch.zeros(3, IN), torch.tensor([[-1], [2]]), ValueError, "-1 to 2"),
        (torch.zeros(3, 7), torch.tensor([[0], [1]]), ValueError, r"\(N, 5\), got \(3, 7\)"),
        (torch.zeros(2, 3, IN), torch.tensor([[0], [1]]), ValueError, r"got \(2, 3, 5\)"),
        (torch.zeros(3, IN), None, ValueError, "got neither"),
    ],
)
def test_a_wrong_graph_raises_a_helpful_error(nodes, edges, error, match):
    with pytest.raises(error, match=match):
        GraphAttention(IN, OUT, HEADS)(nodes, edges)


def test_edges_and_mask_together_are_an_error():
    nodes, edges = torch.zeros(3, IN), torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="got both"):
        GraphAttention(IN, OUT)(nodes, edges, mask=as_mask(edges, 3))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"heads": 0}, "heads must be 1 or more"),
        ({"score": "gta"}, "one of gat, gatv2"),
        ({"combine": "sum"}, "one of concat, mean"),
        ({"dropout": 1.5}, "dropout should be at least 0"),
        ({"value_dropout": -0.5}, "value_dropout should be at least 0"),
    ],
)
def test_a_wrong_configuration_raises_a_helpful_error(options, match):
    with pytest.raises(ValueError, match=match):
        GraphAttention(IN, OUT, **options)


def test_a_score_of_the_wrong_shape_is_an_error():
    layer = GraphAttention(IN, OUT, HEADS, score=lambda query, key: query.sum(-1))
    with pytest.raises(ValueError, match=r"should return \(29, 2, 1, 1\)"):
        layer(torch.zeros(N, IN), random_graph())


def test_edge_numbers_may_be_int32():
    layer, nodes, edges = layer_of(), node_features(), random_graph()
    torch.testing.assert_close(layer(nodes, edges.int()), layer(nodes, edges))
