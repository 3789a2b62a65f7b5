import copy
import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.layers import GraphAttention, with_self_loops
from regard.layers import edges as edge_list
from regard.layers.dropout import drop

with warnings.catch_warnings():  # its import uses a deprecated part of torch
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv, GATv2Conv

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


# ------------------------------------------------------------------ the equations


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


# ------------------------------------------------------------------ torch_geometric


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
    oracle, twin = oracle_of(layer, score, combine), nodes.detach().clone().requires_grad_()
    output, weights = layer(nodes, edges, return_map=True)
    expected, (_, alpha) = oracle(twin, edges, return_attention_weights=True)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(weights, alpha, rtol=1e-10, atol=1e-12)
    pull, pull_weights = torch.randn_like(output), torch.randn_like(weights)
    ((output * pull).sum() + (weights * pull_weights).sum()).backward()
    ((expected * pull).sum() + (alpha * pull_weights).sum()).backward()
    torch.testing.assert_close(nodes.grad, twin.grad, rtol=1e-9, atol=1e-11)
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


# ------------------------------------------------------------------ edges and masks


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


# ------------------------------------------------------------------ gradients and numbers


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


# ------------------------------------------------------------------ a module like others


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
    twin = layer_of(score)
    twin.load_state_dict(layer.state_dict())
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    many = torch.export.Dim("many", min=2)
    exported = torch.export.export(layer, (nodes, edges), dynamic_shapes=(None, {1: many})).module()
    for module in (copy.deepcopy(layer), twin, compiled, exported):
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


@pytest.mark.parametrize(
    ("nodes", "edges", "error", "match"),
    [
        (torch.zeros(0, IN), torch.zeros(2, 0, dtype=torch.long), ValueError, "no nodes"),
        (torch.zeros(3, IN), torch.zeros(2, 0, dtype=torch.long), ValueError, "with_self_loops"),
        (torch.zeros(3, IN), torch.zeros(5, 2, dtype=torch.long), ValueError, r"edges\.T"),
        (torch.zeros(3, IN), torch.zeros(3, 5, dtype=torch.long), ValueError, r"\(2, E\)"),
        (torch.zeros(3, IN), torch.zeros(2, dtype=torch.long), ValueError, r"\(2, E\)"),
        (torch.zeros(3, IN), torch.zeros(2, 5), TypeError, "torch.float32"),
        (torch.zeros(3, IN), torch.zeros(2, 5, dtype=torch.bool), TypeError, "mask="),
        (torch.zeros(3, IN), torch.tensor([[0], [3]]), ValueError, "0 to 3, but the 3 nodes"),
        (torch.zeros(3, IN), torch.tensor([[-1], [2]]), ValueError, "-1 to 2"),
        (torch.zeros(3, 7), torch.tensor([[0], [1]]), ValueError, r"\(N, 5\), got \(3, 7\)"),
        (torch.zeros(2, 3, IN), torch.tensor([[0], [1]]), ValueError, r"got \(2, 3, 5\)"),
        (torch.zeros(3, IN), None, ValueError, "got neither"),
    ],
)
def test_a_wrong_graph_says_what_is_wrong(nodes, edges, error, match):
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
        ({"dropout": 1.5}, "dropout is a probability"),
        ({"value_dropout": -0.5}, "value_dropout is a probability"),
    ],
)
def test_a_wrong_configuration_says_what_to_change(options, match):
    with pytest.raises(ValueError, match=match):
        GraphAttention(IN, OUT, **options)


def test_a_score_of_the_wrong_shape_is_an_error():
    layer = GraphAttention(IN, OUT, HEADS, score=lambda query, key: query.sum(-1))
    with pytest.raises(ValueError, match=r"should return \(29, 2, 1, 1\)"):
        layer(torch.zeros(N, IN), random_graph())


def test_edge_numbers_may_be_int32():
    layer, nodes, edges = layer_of(), node_features(), random_graph()
    torch.testing.assert_close(layer(nodes, edges.int()), layer(nodes, edges))
