"""An edit hides heads, keys and cells of the selected modules, and nothing else."""

import pytest
import torch

import regard
from regard.layers import (
    EfficientAttention,
    GraphAttention,
    HardAttention,
    LocalAttention,
    MemoryAttention,
    MultiHeadAttention,
)
from regard.layers.local import PredictedCenter
from regard.models import build
from regard.trace import edit

X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(3))
SOURCE = torch.tensor([[5, 7, 11, 3, 2], [4, 6, 2, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[1, 9, 8, 7], [1, 5, 6, 4]])


def layer_of(**options: object) -> MultiHeadAttention:
    torch.manual_seed(2)
    return MultiHeadAttention(6, heads=3, **options).eval()


@pytest.mark.parametrize("kv_heads", [3, 1])
def test_a_hidden_head_adds_nothing(kv_heads):
    layer = layer_of(kv_heads=kv_heads)
    with regard.capture(layer) as trace, edit(layer, heads=[1]), torch.no_grad():
        found = layer(X)
    context = trace.calls[0].map.dense() @ _values(layer)
    context[:, 1] = 0.0
    expected = layer.output_projection(context.transpose(1, 2).flatten(-2))
    assert torch.allclose(found, expected, atol=1e-6)
    assert float(trace.calls[0].map[:, 1].abs().max()) == 0.0
    assert torch.allclose(trace.calls[0].map[:, 0].sum(-1), torch.ones(2, 5))


def _values(layer: MultiHeadAttention) -> torch.Tensor:
    value = layer.value_projection(X).unflatten(-1, (layer.kv_heads, -1)).transpose(1, 2)
    return value.expand(2, 3, 5, 2).detach()


def test_a_hidden_word_is_a_mask():
    layer = layer_of()
    shown = torch.tensor([True, False, True, True, False])
    with edit(layer, keys=[1, 4]):
        found = layer(X)
    assert torch.allclose(found, layer(X, mask=shown), atol=1e-6)


def test_a_hidden_cell_and_a_row_are_masks():
    layer = layer_of()
    shown = torch.ones(5, 5, dtype=torch.bool)
    shown[1, 2] = shown[3, 0] = False
    with edit(layer, cells=[(1, 2), (3, 0), (99, 0)]):
        found = layer(X)
    assert torch.allclose(found, layer(X, mask=shown), atol=1e-6)
    shown = torch.ones(5, 5, dtype=torch.bool)
    shown[3, 2] = False
    with edit(layer, queries=[3], keys=[2]):
        found = layer(X)
    assert torch.allclose(found, layer(X, mask=shown), atol=1e-6)


def test_a_word_hidden_from_one_head_stays_visible_to_the_others():
    layer = layer_of()
    with regard.capture(layer) as trace, torch.no_grad():
        layer(X)
        with edit(layer, heads=[2], keys=[0]):
            layer(X)
    before, after = (call.map.dense() for call in trace)
    assert torch.allclose(before[:, :2], after[:, :2], atol=1e-6)
    assert float(after[:, 2, :, 0].abs().max()) == 0.0


def test_an_edit_adds_to_the_masks_there_are_and_ends():
    layer = layer_of()
    before = layer(X, mask=regard.lengths(torch.tensor([5, 3])))
    with edit(layer, keys=[0]):
        layer(X, mask=regard.lengths(torch.tensor([5, 3])))
    after = layer(X, mask=regard.lengths(torch.tensor([5, 3])))
    assert torch.equal(before, after)


def transformer():
    torch.manual_seed(3)
    return build(
        "transformer",
        source_vocabulary=13,
        target_vocabulary=11,
        dim=12,
        heads=3,
        hidden=7,
        layers=2,
    ).eval()


def test_only_the_layers_named_are_changed():
    model = transformer()
    with (
        torch.no_grad(),
        regard.capture(model) as trace,
        edit(model, "decoder.*.memory_*", keys=[0]),
    ):
        model(SOURCE, LENGTHS, TARGET)
    for call in trace:
        seen = float(call.map[..., 0].max())
        assert (seen == 0.0) == ("memory_attention" in call.name)


@pytest.mark.parametrize("kind", ["transformer", "luong", "bahdanau"])
def test_steps_are_edited_as_the_whole_target_is(kind):
    model = transformer()
    if kind != "transformer":
        torch.manual_seed(3)
        sizes = {"source_vocabulary": 13, "target_vocabulary": 11, "hidden": 6, "embedding": 5}
        model = build(kind, **sizes).eval()
    layers = ["decoder.*memory_attention", "decoder.attention"]
    with torch.no_grad():
        memory = model.encode(SOURCE, LENGTHS)
        with edit(model, layers, cells=[(1, 2), (2, 0)]):
            whole = model.decode(memory, TARGET)
        plain = model.decode(memory, TARGET)
        with edit(model, layers, cells=[(1, 2), (2, 0)]):
            state, steps = model.start(memory), []
            for tokens in TARGET.T:
                features, state = model.step(tokens, state)
                steps.append(features)
    assert torch.allclose(torch.stack(steps, 1), whole, atol=1e-5)
    assert not torch.allclose(plain, whole, atol=1e-5)


def test_an_edit_that_names_nothing_is_an_error():
    with pytest.raises(ValueError, match="no module is named like"), edit(layer_of(), "decoder.*"):
        pass


def test_an_edit_that_hides_nothing_changes_no_bit():
    layer = MultiHeadAttention(64, heads=2).eval()
    x = torch.randn(2, 61, 64)
    before = layer(x)
    unused = pytest.warns(UserWarning, match="edit changed no attention call")
    with unused, edit(layer, "query_projection", keys=[0]):
        during = layer(x)
    assert torch.equal(before, during)


@pytest.mark.parametrize("center", [None, PredictedCenter(6)], ids=["monotonic", "predicted"])
@pytest.mark.parametrize("decoding", [False, True])
def test_the_map_of_edited_local_attention_is_the_one_that_made_the_output(center, decoding):
    layer = LocalAttention(6, window=2, center=center).eval()
    with torch.no_grad(), edit(layer, keys=[1, 2]):
        if decoding:
            state = layer.start(2, X)
            (output, map), _ = layer.step(X[:, 1:2], state, return_map=True)
        else:
            output, map = layer(X, return_map=True)
    assert float(map[..., 1:3].abs().max()) == 0.0
    assert torch.allclose(map.dense() @ X, output, atol=1e-6)


@pytest.mark.parametrize("heads", [None, [1]])
def test_hidden_edges_of_a_graph_are_left_out(heads):
    torch.manual_seed(4)
    layer = GraphAttention(6, 5, heads=3, combine="concat").eval()
    edges = torch.tensor([[0, 1, 2, 4, 3, 0], [1, 0, 0, 0, 3, 4]])
    with torch.no_grad():
        plain = layer(X[0], edges).unflatten(-1, (3, 5))
        with edit(layer, heads=heads, cells=[(0, 2), (4, 0)]), regard.capture(layer) as trace:
            found, weights = layer(X[0], edges, return_map=True)
        without = layer(X[0], edges[:, [0, 1, 3, 4]]).unflatten(-1, (3, 5))
    chosen = [0, 1, 2] if heads is None else heads
    expected = plain.clone()
    expected[:, chosen] = without[:, chosen]
    assert torch.allclose(found.unflatten(-1, (3, 5)), expected, atol=1e-6)
    assert float(weights[[2, 5]][:, chosen].max()) == 0.0
    assert float(trace.calls[0].map.dense()[0, chosen, 0, 2].max()) == 0.0


@pytest.mark.parametrize("heads", [None, [1]])
def test_heads_of_a_graph_under_a_mask_are_edited_alone(heads):
    layer = GraphAttention(6, 5, heads=3).eval()
    with torch.no_grad(), edit(layer, heads=heads, keys=[2]):
        _, map = layer(X[0], mask=regard.window(9, 9), return_map=True)
    hidden = [float(map[head, :, 2].max()) == 0.0 for head in range(3)]
    assert hidden == [heads is None or head in heads for head in range(3)]


def test_a_hard_choice_never_takes_a_hidden_key():
    layer = HardAttention(6).train()
    with edit(layer, keys=[0, 1, 3, 4]), regard.capture(layer) as trace:
        choice = layer.choose(X)
    assert choice.chosen.unique().tolist() == [2]
    assert torch.equal(choice.log_probability, torch.zeros(2, 5))
    assert float(trace.calls[0].map[..., 2].min()) == 1.0


def test_what_cannot_be_edited_is_an_error_only_where_it_is_selected():
    model = torch.nn.ModuleDict({"memory": MemoryAttention(5, slots=7, width=3), "x": layer_of()})
    memory = model["memory"]
    with pytest.raises(ValueError, match="'memory' cannot be edited"), edit(model, keys=[0]):
        memory.step(torch.randn(2, 5), memory.start(batch=2))
    with edit(model, "x", keys=[0]):
        memory.step(torch.randn(2, 5), memory.start(batch=2))
        model["x"](X)
    efficient = EfficientAttention(6, heads=2)
    with pytest.raises(ValueError, match="cannot be edited"), edit(efficient, keys=[0]):
        efficient.step(X[:, :1], efficient.start(2))


def test_a_weight_is_set_and_the_others_of_its_row_keep_their_proportions():
    layer = layer_of()
    with regard.capture(layer) as before, torch.no_grad():
        layer(X)
    with regard.capture(layer) as after, edit(layer, heads=[1], cells=[(2, 4)], weight=0.7):
        found = layer(X)
    expected = before.calls[0].map.dense().clone()
    row = expected[:, 1, 2]
    others = row.clone()
    others[:, 4] = 0
    expected[:, 1, 2] = 0.3 * others / others.sum(-1, keepdim=True)
    expected[:, 1, 2, 4] = 0.7
    assert torch.allclose(after.calls[0].map.dense(), expected, atol=1e-6)
    context = (expected @ _values(layer)).transpose(1, 2).flatten(-2)
    assert torch.allclose(found, layer.output_projection(context), atol=1e-5)


@pytest.mark.parametrize("kind", ["luong", "bahdanau", "transformer"])
def test_a_weight_set_at_a_step_is_that_of_the_row(kind):
    model = build(kind, "tiny", source_vocabulary=13, target_vocabulary=11).eval()
    with regard.capture(model) as whole, torch.no_grad():
        model.decode(model.encode(SOURCE[:1], LENGTHS[:1]), TARGET[:1])
    name = next(c.name for c in whole.stitched().calls if c.queries != c.keys)
    set_cell = edit(model, name, cells=[(1, 2)], weight=1.0)
    with torch.no_grad(), regard.capture(model) as trace, set_cell:
        model.decode(model.encode(SOURCE[:1], LENGTHS[:1]), TARGET[:1])
    (call,) = (c for c in trace.stitched().calls if c.name == name)
    row = call.map.dense()[0, :, 1]
    assert torch.allclose(row, torch.eye(5)[2].expand_as(row), atol=1e-6)
    (other,) = (c.map.dense()[0, :, 0] for c in whole.stitched().calls if c.name == name)
    assert torch.allclose(call.map.dense()[0, :, 0], other, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({}, {"cells": [(0, 1)], "weight": 1.5}, "weight should be from 0 to 1, got 1.5"),
        ({}, {"keys": [0, 1], "weight": 0.6}, "weights of a row add up to 1"),
        (
            {"mask": regard.causal()},
            {"cells": [(0, 1)], "weight": 0.5},
            "hides cannot get a weight",
        ),
    ],
)
def test_a_weight_that_cannot_be_is_an_error(options, given, words):
    layer = layer_of()
    with pytest.raises(ValueError, match=words), edit(layer, **given):
        layer(X, **options)


def test_a_weight_is_set_after_softmax_only():
    layer = HardAttention(6, score="scaled_dot").eval()
    with pytest.raises(ValueError, match="after softmax only"), edit(layer, keys=[0], weight=0.5):
        layer(X, X)
