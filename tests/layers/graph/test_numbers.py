"""Graph attention in blocks, with large scores, with dropout; its derivatives."""

import math

import pytest
import torch

from regard.layers import GraphAttention, with_self_loops
from regard.layers import edges as edge_list
from regard.layers.dropout import drop
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


@pytest.mark.parametrize("block", [1, 2**19])
def test_first_and_second_derivatives_are_right(block, monkeypatch):
    monkeypatch.setattr(edge_list, "CACHED_ELEMENTS", block)
    edges = random_graph(7, nodes=5)
    weights = torch.rand(7, 2, dtype=torch.float64, requires_grad=True)
    value = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)

    def total(weights, value):
        return edge_list.edge_sum(weights, value, edges[1], edges[0], 5)

    assert torch.autograd.gradcheck(total, (weights, value))
    assert torch.autograd.gradgradcheck(total, (weights, value))

    def soft(scores):
        return edge_list.edge_softmax(scores, edges[1], 5)

    assert torch.autograd.gradcheck(soft, (weights,))
    assert torch.autograd.gradgradcheck(soft, (weights,))


@pytest.mark.parametrize("score", SCORES)
def test_the_whole_layer_has_right_gradients(score):
    layer, edges = layer_of(score), random_graph(13, nodes=5)
    nodes = node_features(5)
    names = list(dict(layer.named_parameters()))

    def run(nodes, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, given, (nodes, edges))

    assert torch.autograd.gradcheck(run, (nodes, *layer.parameters()))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("score", SCORES)
def test_forward_mode_and_function_transforms_agree_with_autograd(score):
    layer, nodes, edges = layer_of(score), node_features().detach(), random_graph()
    push = torch.randn_like(nodes)
    _, forward = torch.func.jvp(lambda x: layer(x, edges), (nodes,), (push,))
    _, pull = torch.func.vjp(lambda x: layer(x, edges), nodes)
    probe = torch.randn_like(forward)
    torch.testing.assert_close((forward * probe).sum(), (pull(probe)[0] * push).sum())


@pytest.mark.parametrize("score", SCORES)
def test_blocks_of_edges_change_nothing(score, monkeypatch):
    edges = random_graph(997, nodes=N)
    layer, nodes = layer_of(score), node_features()
    whole = layer(nodes, edges)
    expected = torch.autograd.grad(whole.square().sum(), [nodes, *layer.parameters()])
    monkeypatch.setattr(edge_list, "CACHED_ELEMENTS", 101)
    monkeypatch.setattr(edge_list, "BLOCK_ELEMENTS", 101)
    blocked = layer(nodes, edges)
    torch.testing.assert_close(blocked, whole)
    got = torch.autograd.grad(blocked.square().sum(), [nodes, *layer.parameters()])
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_large_scores_stay_finite_and_hidden_edges_weigh_nothing():
    target = torch.tensor([0, 0, 1, 1, 2])
    scores = torch.tensor([[1e30], [-1e30], [-math.inf], [3.0], [-math.inf]], requires_grad=True)
    weights = edge_list.edge_softmax(scores, target, 4)
    assert weights.flatten().tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    (weights * torch.randn(5, 1)).sum().backward()
    assert scores.grad.isfinite().all()


def test_the_same_call_gives_the_same_bits():
    layer, nodes = GraphAttention(IN, OUT, HEADS, score="gatv2"), torch.randn(503, IN)
    edges = random_graph(5003, nodes=503)
    first, second = layer(nodes, edges), layer(nodes, edges)
    assert torch.equal(first, second)
    weight = layer.value.weight
    (one,) = torch.autograd.grad(first.square().sum(), weight)
    (other,) = torch.autograd.grad(second.square().sum(), weight)
    assert torch.equal(one, other)


def test_value_dropout_leaves_the_weights_alone_and_ends_with_training():
    edges = with_self_loops(random_graph(), N)
    nodes = torch.randn(N, IN, dtype=torch.float64)
    layer, plain = layer_of(value_dropout=0.5), layer_of()
    dropped, expected = layer(nodes, edges, return_map=True), plain(nodes, edges, return_map=True)
    torch.testing.assert_close(dropped.map, expected.map)  # scores see the whole value
    assert not torch.allclose(dropped.output, expected.output)
    mean = torch.stack([layer(nodes, edges) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(mean, expected.output, atol=0.1, rtol=0)
    torch.testing.assert_close(layer.eval()(nodes, edges), expected.output)


def test_dropout_falls_on_weights_in_train_mode_only():
    layer = layer_of("gatv2", dropout=0.5)
    nodes, edges = node_features(), random_graph()
    torch.manual_seed(3)
    output, weights = layer(nodes, edges, return_map=True)
    torch.manual_seed(3)
    kept = drop(weights, 0.5, training=True)
    value = layer.value(nodes).view(N, HEADS, OUT)
    messages = kept.unsqueeze(-1) * value[edges[0]]
    expected = torch.zeros_like(value).index_add(0, edges[1], messages).flatten(1) + layer.bias
    torch.testing.assert_close(output, expected)
    layer.eval()
    plain = layer(nodes, edges, return_map=True)
    torch.testing.assert_close(plain.map, weights)  # weights are those before dropout
    assert not torch.allclose(plain.output, output)
    assert torch.equal(layer(nodes, edges), plain.output)
