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
from regard.models import LanguageModel, build
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
    unused = pytest.raises(ValueError, match="hide met no attention call")
    with unused, edit(layer, "query_projection", keys=[0]):
        during = layer(x)
    assert torch.equal(before, during)
    with edit(layer):
        pass
    assert torch.equal(before, layer(x))


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


class Torch(torch.nn.Module):
    """Attention of torch, or written with its function."""

    def __init__(self, attention=None):
        super().__init__()
        torch.manual_seed(5)
        self.attention = attention or torch.nn.MultiheadAttention(6, 3, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Written(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.qkv, self.output_projection = torch.nn.Linear(6, 18), torch.nn.Linear(6, 6)

    def forward(self, x):
        three = self.qkv(x).chunk(3, -1)
        q, k, v = (each.unflatten(-1, (3, 2)).transpose(1, 2) for each in three)
        context = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.output_projection(context.transpose(1, 2).flatten(-2))


def transformers_model(implementation):
    pytest.importorskip("transformers", reason="needs transformers")
    from tests.trace.test_hugging_face_architectures import LLAMA, model_of

    regard.trace.register_transformers()
    return model_of("Llama", LLAMA, implementation).requires_grad_(False)


MODELS = {
    "ours": lambda: (torch.nn.Sequential(layer_of()), X),
    "grouped": lambda: (torch.nn.Sequential(layer_of(kv_heads=1)), X),
    "torch": lambda: (Torch().eval(), X),
    "sdpa": lambda: (Written().eval(), X),
    "language": lambda: (LanguageModel(13, dim=6, heads=3, hidden=7, layers=2).eval(), SOURCE),
    "llama sdpa": lambda: (transformers_model("sdpa"), SOURCE),
    "llama eager": lambda: (transformers_model("eager"), SOURCE),
    "llama regard": lambda: (transformers_model("regard"), SOURCE),
}


def output_of(model, x):
    with torch.no_grad():
        output = model(x)
    return output if isinstance(output, torch.Tensor) else output[0]


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_of_heads_are_scaled_zeroed_and_patched(kind):
    """The same equations on every implementation: a head's output is all that it adds."""
    model, x = MODELS[kind]()
    with regard.capture(model) as trace:
        plain = output_of(model, x)
    with regard.capture(model) as other:
        output_of(model, x.flip(0))
    name = trace.names[-1]

    def under(*edits):
        with edit(model) as each, regard.capture(model) as during:
            for method, *args, options in edits:
                getattr(each, method)(*args, **options)
            found = output_of(model, x)
        assert during[name].verify() < 1e-5
        return found, during[name].output

    hidden, _ = under(("hide", name, {"head": 1}))
    zeroed, heads = under(("zero", name, {"head": 1}))
    assert torch.allclose(hidden, zeroed, atol=1e-6)
    assert float(heads[:, 1].abs().max()) == 0.0
    assert torch.allclose(heads[:, 2], trace[name].output[:, 2], atol=1e-6)
    doubled, heads = under(("scale", name, 2.0, {"head": 1, "query": 3}))
    assert torch.allclose(heads[:, 1, 3], 2 * trace[name].output[:, 1, 3], atol=1e-6)
    assert torch.allclose(heads[:, 1, :3], trace[name].output[:, 1, :3], atol=1e-6)
    assert not torch.allclose(doubled, plain)
    _, heads = under(("patch", name, {"head": 1, "source": other}))
    assert torch.allclose(heads[:, 1], other[name].output[:, 1], atol=1e-6)
    _, heads = under(("mean", name, {"head": 1, "source": [other, trace]}))
    assert torch.allclose(heads[:, 1], other[name].output[:, 1].mean((0, 1)), atol=1e-6)
    itself, _ = under(("patch", name, {"source": trace}))
    assert torch.allclose(itself, plain, atol=1e-5)
    restored, _ = under(("scale", name, 2.0, {"head": 1}), ("scale", name, 0.5, {"head": 1}))
    assert torch.allclose(restored, plain, atol=1e-5)
    assert torch.equal(output_of(model, x), plain)


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "grouped"])
def test_rows_and_maps_are_set(kind):
    model, x = MODELS[kind]()
    with regard.capture(model) as trace:
        output_of(model, x)
    name, N = trace.names[-1], 5
    map = torch.rand(N, N, generator=torch.Generator().manual_seed(3)).tril() + torch.eye(N)
    map = map / map.sum(-1, keepdim=True)
    with edit(model) as edits, regard.capture(model) as during:
        edits.set(name, map, head=1)
        edits.set(name, map[4], head=0, query=4)
        output_of(model, x)
    found, before = during[name].map.dense(), trace[name].map.dense()
    assert torch.allclose(found[:, 1], map.expand_as(found[:, 1]), atol=1e-5)
    assert torch.allclose(found[:, 0, 4], map[4].expand_as(found[:, 0, 4]), atol=1e-5)
    assert torch.allclose(found[:, 2], before[:, 2], atol=1e-6)
    assert torch.allclose(found[:, 0, :4], before[:, 0, :4], atol=1e-6)


def test_a_word_is_hidden_from_what_reads_the_source_only():
    model = transformer()
    with torch.no_grad(), regard.capture(model) as trace, edit(model) as edits:
        edits.hide(word=1)
        model(SOURCE, LENGTHS, TARGET)
    for call in trace:
        assert (float(call.map[..., 1].max()) == 0.0) == (call.keys == "source"), call.name


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "regard"])
def test_generated_text_is_that_of_a_full_pass_under_the_same_edit(implementation):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    from tests.trace.test_hugging_face_architectures import LLAMA

    regard.trace.register_transformers()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**LLAMA)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation=implementation)
    model = model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8.0)
    prompt, options = SOURCE[:1], {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}

    def generate():
        return model.generate(prompt, max_new_tokens=4, **options)[0]

    with edit(model) as edits:
        edits.hide(word=1)
        edits.zero("model.layers.1.self_attn", head=2)
        effect = edits.compare(generate)
    ids = effect.after
    with edit(model) as edits, torch.no_grad():
        edits.hide(word=1)
        edits.zero("model.layers.1.self_attn", head=2)
        logits = model(ids[None, :-1]).logits[0]
    assert logits[4:].argmax(-1).tolist() == ids[5:].tolist()
    assert effect.before.tolist() == generate().tolist() != ids.tolist()


def test_an_exception_restores_the_model_and_is_the_one_that_is_raised():
    model, x = MODELS["torch"]()
    plain = output_of(model, x)
    with pytest.raises(AssertionError, match="embedding dimension"), edit(model, heads=[0]):
        model(torch.zeros(2, 5, 7))
    assert torch.equal(output_of(model, x), plain)


def test_an_effect_has_logits_and_probabilities():
    layer = layer_of()
    with torch.no_grad(), edit(layer) as edits:
        edits.hide(word=2)
        effect = edits.compare(lambda: layer(X))
        after = layer(X)
    assert torch.allclose(effect.difference, after - layer(X), atol=1e-6)
    ids, before, later = effect.probabilities(2)
    assert ids.shape == (2, 5, 2)
    assert torch.allclose(later, after.softmax(-1).gather(-1, ids))
    assert torch.allclose(before, layer(X).softmax(-1).gather(-1, ids), atol=1e-6)


def run_edited(layer, method, *args, **options):
    with edit(layer) as edits:
        getattr(edits, method)(*args, **options)
        return layer(X)


@pytest.mark.parametrize(
    ("method", "args", "options", "words"),
    [
        ("hide", (), {"word": 1, "key": 2}, "not both"),
        ("hide", (), {"head": 7}, "heads of .* are 0 to 2, got 7"),
        ("set", ("*", torch.tensor([0.5, 0.2])), {}, "add up to 1"),
        ("set", ("*", torch.tensor([0.5, 0.5])), {}, "5 queries from 0 and 5 keys"),
        ("patch", ("*",), {"source": regard.trace.Trace()}, "no outputs of"),
        ("hide", ("decoder",), {}, "no module is named like"),
    ],
)
def test_edits_that_cannot_be_are_errors(method, args, options, words):
    with pytest.raises(ValueError, match=words):
        run_edited(layer_of(), method, *args, **options)


def test_a_patch_of_another_length_is_an_error():
    layer = layer_of()
    with regard.capture(layer) as source:
        layer(X[:, :3])
    with pytest.raises(ValueError, match="5 positions, and 3"):
        run_edited(layer, "patch", "*", source=source)
