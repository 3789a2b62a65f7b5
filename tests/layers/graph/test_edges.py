"""Graph attention over edges and under masks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.layers import GraphAttention
from regard.layers import edges as edge_list
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


class Plain(torch.nn.Module):
    """A score with parameters that knows nothing of graphs."""

    def __init__(self):
        super().__init__()
        self.inner = regard.General(OUT, OUT)

    def forward(self, query, key):
        return torch.tanh(self.inner(query, key))


@pytest.mark.parametrize(
    "make",
    [
        lambda: "gat",
        lambda: "gatv2",
        lambda: regard.ScaledDot(),
        lambda: regard.Additive(OUT, OUT, 7),
        lambda: Plain(),
        lambda: lambda query, key: (query @ key.transpose(-1, -2)).cos(),
    ],
    ids=["gat", "gatv2", "ScaledDot", "Additive", "module", "function"],
)
def test_edge_list_and_mask_agree_for_any_score(make):
    layer, nodes = layer_of(make()), node_features()
    edges = random_graph().unique(dim=1)
    output, weights = layer(nodes, edges, return_map=True)
    dense, map = layer(nodes, mask=as_mask(edges, N), return_map=True)
    torch.testing.assert_close(output, dense, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(weights, map.dense()[:, edges[1], edges[0]].T)
    pull = torch.randn_like(output)
    inputs = [nodes, *layer.parameters()]
    got = torch.autograd.grad((output * pull).sum(), inputs)
    want = torch.autograd.grad((dense * pull).sum(), inputs)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@settings(max_examples=40)
@given(
    nodes=st.integers(1, 7),
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, unique=True),
    score=st.sampled_from(SCORES),
)
def test_edge_list_and_mask_agree_on_any_graph(nodes, pairs, score):
    edges = torch.tensor(pairs).T % nodes
    edges = edges.unique(dim=1)
    layer, features = layer_of(score), node_features(nodes)
    dense = layer(features, mask=as_mask(edges, nodes))
    torch.testing.assert_close(layer(features, edges), dense, rtol=1e-9, atol=1e-11)


def test_a_symbolic_mask_is_a_graph_too():
    layer, nodes = layer_of("gatv2"), node_features()
    mask = regard.window(2, 1)
    edges = mask.dense(N, N).nonzero().T.flip(0)
    torch.testing.assert_close(layer(nodes, mask=mask), layer(nodes, edges))


def test_weights_come_in_the_order_of_the_edges():
    layer, nodes, edges = layer_of("gatv2"), node_features(), random_graph()
    output, weights = layer(nodes, edges, return_map=True)
    order = torch.randperm(edges.shape[1])
    again, shuffled = layer(nodes, edges[:, order], return_map=True)
    torch.testing.assert_close(shuffled, weights[order])
    torch.testing.assert_close(again, output)
    sums = torch.zeros(N, HEADS, dtype=torch.float64).index_add(0, edges[1], weights)
    ends = torch.bincount(edges[1], minlength=N) > 0
    torch.testing.assert_close(sums, ends.double().unsqueeze(-1).expand(N, HEADS))


def test_renaming_the_nodes_renames_the_output():
    layer, nodes, edges = layer_of("gatv2"), node_features(), random_graph()
    order = torch.randperm(N)
    renamed = layer(nodes[order], order.argsort()[edges])
    torch.testing.assert_close(renamed, layer(nodes, edges)[order])


def test_graphs_side_by_side_do_not_touch_each_other():
    layer, nodes, edges = layer_of("gatv2"), node_features(), random_graph()
    two = torch.cat((edges, edges + N), dim=1)
    before = layer(torch.cat((nodes, nodes)), two)
    after = layer(torch.cat((nodes, nodes * 3)), two)
    assert torch.equal(before[:N], after[:N])
    torch.testing.assert_close(before[:N], layer(nodes, edges))


def test_an_isolated_node_of_a_new_layer_is_zero():
    layer = GraphAttention(IN, OUT, HEADS)
    output = layer(torch.randn(N, IN), random_graph())
    assert torch.equal(output[0], torch.zeros(HEADS * OUT))
    assert output[1:].abs().sum() > 0


def test_any_attention_map_summed_over_its_edges_is_the_output():
    q, k, v = torch.randn(3, 2, 7, 5, dtype=torch.float64)
    output, map = regard.attend(q, k, v, mask=regard.causal(), return_map=True)
    edges = map.edges()
    flat = v.reshape(14, 1, 5)
    summed = edge_list.edge_sum(edges.weight.unsqueeze(-1), flat, edges.query, edges.key, 14)
    torch.testing.assert_close(summed.view(2, 7, 5), output)
