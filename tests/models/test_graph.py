import pytest
import torch
import torch.nn.functional as F

from regard.attention.observer import record
from regard.layers.edges import with_self_loops
from regard.models.graph import GraphAttentionNetwork

EDGES = torch.tensor([[0, 1, 1, 2, 3, 5], [1, 0, 2, 1, 5, 3]])


def test_two_layers_are_the_equations_of_the_paper() -> None:
    torch.manual_seed(0)
    model = GraphAttentionNetwork(11, 3, hidden=5, heads=2, output_heads=7).double().eval()
    x = torch.randn(7, 11, dtype=torch.float64)
    loops = with_self_loops(EDGES, 7)
    adjacent = torch.zeros(7, 7, dtype=torch.bool)
    adjacent[loops[1], loops[0]] = True

    def heads(layer, h):  # one head at a time, by eq. 1 to 4
        made = []
        for head in range(layer.heads):
            W = layer.value.weight.view(layer.heads, layer.out_dim, -1)[head]
            Wh = h @ W.T
            a = torch.cat((layer.score.target[head], layer.score.source[head]))
            pairs = torch.cat((Wh[:, None].expand(7, 7, -1), Wh[None].expand(7, 7, -1)), dim=-1)
            e = F.leaky_relu(pairs @ a, 0.2).masked_fill(~adjacent, -torch.inf)
            made.append(e.softmax(-1) @ Wh)
        return made

    first, last = model.layers
    hidden = F.elu(torch.cat(heads(first, x), dim=-1) + first.bias)
    expected = torch.stack(heads(last, hidden)).mean(0) + last.bias
    torch.testing.assert_close(model(x, EDGES), expected)


def test_sparse_features_give_what_dense_ones_give_with_gradients() -> None:
    torch.manual_seed(0)
    model = GraphAttentionNetwork(11, 3, hidden=5, heads=2).eval()
    x = torch.randn(7, 11) * (torch.rand(7, 11) < 0.3)
    grads = []
    for nodes in (x, x.to_sparse_coo()):
        model.zero_grad()
        out = model(nodes, EDGES)
        out.square().sum().backward()
        grads.append((out, *(p.grad.clone() for p in model.parameters())))
    for dense, sparse in zip(*grads, strict=True):
        torch.testing.assert_close(dense, sparse)


def test_dropout_of_sparse_features_keeps_their_mean() -> None:
    torch.manual_seed(0)
    model = GraphAttentionNetwork(11, 3, layers=1, dropout=0.5, attention_dropout=0.0)
    nodes = torch.eye(11).to_sparse_coo()
    outs = torch.stack([model(nodes, EDGES) for _ in range(3000)])
    assert outs.std(0).max() > 0
    # the scores see the dropped features too, so that only nodes with one neighbour are unbiased
    torch.testing.assert_close(outs.mean(0)[7:], model.eval()(nodes, EDGES)[7:], atol=0.05, rtol=0)


def test_a_node_sees_as_far_as_there_are_layers() -> None:
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    for layers in (1, 2, 3):
        model = GraphAttentionNetwork(2, 3, layers=layers).eval()
        x = torch.randn(5, 2, requires_grad=True)
        model(x, path)[4].sum().backward()
        seen = x.grad.abs().sum(-1).nonzero().flatten().tolist()
        assert seen == list(range(4 - layers, 5))


def test_weights_of_a_node_sum_to_one_in_every_layer() -> None:
    model = GraphAttentionNetwork(11, 3, hidden=5, heads=2).eval()
    with record() as calls:
        model(torch.randn(7, 11), EDGES)
    targets = with_self_loops(EDGES, 7)[1]
    assert len(calls) == 2
    for weights in (call.weights for call in calls):
        total = torch.zeros(7, weights.shape[1]).index_add(0, targets, weights)
        torch.testing.assert_close(total, torch.ones_like(total))


def test_nodes_of_another_width_raise_a_helpful_error() -> None:
    with pytest.raises(ValueError, match=r"nodes should be \(N, 11\), got \(7, 5\)"):
        GraphAttentionNetwork(11, 3)(torch.randn(7, 5), EDGES)
