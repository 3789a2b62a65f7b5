"""Capture records every attention call of a model and changes nothing."""

import threading

import pytest
import torch
from torch import nn

import regard
from regard.layers import (
    CoAttention,
    EfficientAttention,
    GraphAttention,
    HardAttention,
    HierarchicalAttention,
    LocalAttention,
    MemoryAttention,
    MultiDimensionalAttention,
    MultiHeadAttention,
)
from regard.layers.local import PredictedCenter
from regard.models import build
from tests.recorded import recorded

SOURCE = torch.tensor([[5, 7, 11, 3, 2], [4, 6, 2, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[1, 9, 8, 7], [1, 5, 6, 4]])
KINDS = ["transformer", "bahdanau", "luong", "gnmt"]


def model_of(kind: str, **options: object) -> nn.Module:
    torch.manual_seed(3)
    sizes: dict = {"hidden": 6, "embedding": 5}
    if kind == "transformer":
        sizes = {"dim": 12, "heads": 3, "hidden": 7, "layers": 2, "max_length": 32}
    vocabulary = {"source_vocabulary": 13, "target_vocabulary": 11}
    return build(kind, **vocabulary, **sizes, **options).eval()


def run(model: nn.Module) -> torch.Tensor:
    return model.output(model(SOURCE, LENGTHS, TARGET))


@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_model_gives_the_same_bits(kind):
    model = model_of(kind)
    before = run(model)
    with regard.capture(model) as trace:
        during = run(model)
    assert torch.equal(before, during)
    assert torch.equal(before, run(model))
    assert len(trace) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_and_gradients_are_the_same_under_capture(kind):
    model = model_of(kind, dropout=0.3).train()

    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(5)
        model.zero_grad()
        run(model).square().mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    before = gradients()
    with regard.capture(model):
        during = gradients()
    assert all(torch.equal(a, b) for a, b in zip(before, during, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_captured_maps_are_those_that_the_model_returns(kind):
    model = model_of(kind)
    with regard.capture(model) as trace, torch.no_grad():
        model(SOURCE, LENGTHS, TARGET)
    with torch.no_grad():
        _, maps = recorded(model, lambda: model(SOURCE, LENGTHS, TARGET))
    whole = trace.stitched()
    assert set(maps) <= set(whole.names)
    for name, expected in maps.items():
        assert torch.allclose(whole[name].map.dense(), expected, atol=1e-6), name
        assert whole[name].verify() < 1e-5


def test_names_say_whose_rows_and_columns_there_are():
    model = model_of("transformer")
    with regard.capture(model) as trace:
        run(model)
    found = {name: (trace[name].queries, trace[name].keys) for name in trace.names}
    assert found["encoder.layers.1.attention"] == ("source", "source")
    assert found["decoder.layers.0.attention"] == ("target", "target")
    assert found["decoder.layers.1.memory_attention"] == ("target", "source")
    with (
        pytest.warns(UserWarning, match="was the model called"),
        regard.capture(model_of("luong")) as empty,
    ):
        pass
    assert empty.names == []
    luong = model_of("luong")
    with regard.capture(luong) as trace:
        run(luong)
    assert {(call.queries, call.keys) for call in trace} == {("target", "source")}


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_stitched_into_the_map_of_teacher_forcing(kind):
    model = model_of(kind)
    with torch.no_grad():
        memory = model.encode(SOURCE, LENGTHS)
        _, maps = recorded(model, lambda: model.decode(memory, TARGET))
        with regard.capture(model) as trace:
            state = model.start(model.encode(SOURCE, LENGTHS))
            for tokens in TARGET.T:
                _, state = model.step(tokens, state)
    whole = trace.stitched()
    for name, expected in maps.items():
        assert whole[name].map.shape == expected.shape
        assert torch.allclose(whole[name].map.dense(), expected, atol=1e-5), name
        assert torch.allclose(whole[name].map[..., 1:3, :], expected[..., 1:3, :], atol=1e-5)


def test_beams_are_not_stitched_but_explained():
    model = model_of("transformer")
    with torch.no_grad(), regard.capture(model) as trace:
        state = model.start(model.encode(SOURCE, LENGTHS))
        _, state = model.step(TARGET[:, 0], state)
        state = state.reorder(torch.tensor([0, 0, 0, 1, 1, 1]))
        model.step(TARGET[:, :1].repeat(1, 3).flatten(), state)
    with pytest.raises(ValueError, match="decode its output again"):
        trace.stitched()


def test_a_language_model_is_recorded_as_one_sentence():
    torch.manual_seed(3)
    model = build("language", vocabulary=13, dim=12, heads=3, hidden=7, layers=2).eval()
    with regard.capture(model) as trace, torch.no_grad():
        _, maps = recorded(model, lambda: model(SOURCE))
    assert {(call.queries, call.keys) for call in trace} == {("source", "source")}
    for name, map in maps.items():
        assert torch.allclose(trace[name].map.dense(), map, atol=1e-6)


def test_one_example_is_read_without_the_others():
    model = model_of("transformer", kv_heads=1)
    with regard.capture(model) as trace, torch.no_grad():
        model(SOURCE, LENGTHS, TARGET)
    trace.label(source=[list("abcde"), list("fgh")], target=[list("wxyz")] * 2)
    for index in (0, 1):
        one = trace.of(index)
        for call in trace:
            rows, columns = one[call.name].shape[-2:]
            expected = call.map.dense()[index, :, :rows, :columns]
            assert torch.allclose(one[call.name].map.dense(), expected, atol=1e-6), call.name
    assert trace.of(1)["encoder.layers.0.attention"].shape == (3, 3, 3)
    assert trace.of(1)["encoder.layers.0.attention"].inputs.query.shape[-2] == 5


@pytest.mark.parametrize("score", ["dot", "general", "additive", "concat", "cosine"])
def test_a_map_keeps_the_parameters_of_its_moment(score):
    model = model_of("luong", score=score).train()
    with regard.capture(model) as trace:
        logits = run(model)
    with torch.no_grad():
        _, maps = recorded(model, lambda: model(SOURCE, LENGTHS, TARGET))
    logits.square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=10.0).step()
    whole = trace.stitched()
    for name, map in maps.items():
        assert torch.allclose(whole[name].map.dense(), map, atol=1e-6)
        assert whole[name].verify() < 1e-5


def test_a_map_whose_keys_were_overwritten_raises():
    layer = HardAttention(5, score="dot")
    x = torch.randn(2, 3, 5)
    with regard.capture(layer) as trace:
        layer(x)
    x.zero_()
    with pytest.raises(RuntimeError, match="changed in place"):
        trace.calls[0].map.dense()


def test_captures_nest_and_end():
    layer = MultiHeadAttention(6, heads=2).eval()
    x = torch.randn(2, 3, 6)
    with regard.capture(layer) as outer:
        layer(x)
        with regard.capture(layer) as inner:
            layer(x)
    layer(x)
    assert outer.names == ["MultiHeadAttention", "MultiHeadAttention#2"]
    assert inner.names == ["MultiHeadAttention"]


def test_a_failing_model_leaves_nothing_behind():
    sdpa = nn.functional.scaled_dot_product_attention
    layer = MultiHeadAttention(6, heads=2)
    with pytest.raises(ValueError, match="query should be"), regard.capture(layer) as trace:
        layer(torch.randn(2, 3, 7))
    assert nn.functional.scaled_dot_product_attention is sdpa
    layer(torch.randn(2, 3, 6))
    assert trace.names == []


def test_other_threads_and_other_models_are_not_recorded():
    layer, other = MultiHeadAttention(6, heads=2), MultiHeadAttention(6, heads=3)
    x = torch.randn(2, 3, 6)
    outside = pytest.warns(UserWarning, match="1 attention calls came from outside")
    with outside, regard.capture(layer) as trace:
        thread = threading.Thread(target=layer, args=(x,))
        thread.start()
        thread.join()
        other(x)
    assert trace.names == []


def test_without_a_model_every_call_is_recorded():
    x = torch.randn(2, 3, 6)
    with regard.capture() as trace:
        regard.attend(x, x, x)
        MultiHeadAttention(6, heads=2)(x)
    assert trace.names == ["attend", "MultiHeadAttention"]
    assert trace["attend"].shape == (2, 1, 3, 3)


def test_what_has_a_model_is_captured_by_it():
    class Run:
        model = MultiHeadAttention(6, heads=2)

    with regard.capture(Run()) as trace:
        Run.model(torch.randn(2, 3, 6))
    assert len(trace) == 1
    with pytest.raises(TypeError, match="capture takes a torch module"), regard.capture("model"):
        pass


def test_what_a_checkpoint_computes_again_is_recorded_once():
    layer = MultiHeadAttention(6, heads=2)
    x = torch.randn(2, 3, 6, requires_grad=True)
    with regard.capture(layer) as trace:
        again = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        again.sum().backward()
    assert len(trace) == 1


X = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(11))
EDGES = torch.tensor([[0, 1, 2, 6, 3, 3], [1, 0, 0, 5, 3, 4]])
LAYERS = {
    "local-m": (LocalAttention(6, window=2), (X,)),
    "local-m in chunks": (LocalAttention(6, window=2, score=regard.ActivatedGeneral(6, 6)), (X,)),
    "local-p": (LocalAttention(6, window=2, center=PredictedCenter(6)), (X,)),
    "hard": (HardAttention(6), (X,)),
    "features": (MultiDimensionalAttention(6), (X,)),
    "linear": (EfficientAttention(6, heads=2), (X,)),
    "edges": (GraphAttention(6, 5, heads=3), (X[0], EDGES)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_off_the_beaten_track_are_recorded_as_one_true_call(name):
    layer, args = LAYERS[name]
    layer = layer.eval()
    with torch.no_grad():
        plain, map = layer(*args, return_map=True)
        with regard.capture(layer) as trace:
            output = layer(*args)
    assert torch.equal(output, plain)
    (call,) = trace
    assert call.verify() < 1e-5
    if name != "edges":
        assert torch.allclose(call.map.dense().reshape(map.shape), map.dense(), atol=1e-6)
    else:
        for edge, (source, target) in enumerate(EDGES.T.tolist()):
            assert torch.allclose(call.map[0, :, target, source], map[edge], atol=1e-6)
        assert call.shape == (1, 3, 7, 7)


def test_graph_attention_under_a_mask_has_heads_and_no_batch():
    layer = GraphAttention(6, 5, heads=3)
    with regard.capture(layer) as trace:
        layer(X[0], mask=regard.window(1, 1))
    assert trace.calls[0].shape == (1, 3, 7, 7)


def test_a_sampled_choice_is_a_map_of_ones_and_zeros():
    layer = HardAttention(6).train()
    with regard.capture(layer) as trace:
        choice = layer.choose(X)
    map = trace.calls[0].map.dense()[:, 0]
    assert torch.equal(map.argmax(-1), choice.chosen)
    assert torch.equal(map.sum(-1), torch.ones(2, 7))
    assert trace.calls[0].verify() == 0.0


def test_a_memory_reports_what_it_writes_and_reads():
    layer = MemoryAttention(5, slots=7, width=3, reads=2)
    state = layer.start(batch=2)
    with regard.capture(layer) as trace, torch.no_grad():
        for _ in range(3):
            _, state = layer.step(torch.randn(2, 5), state)
    whole = trace.stitched()
    assert whole.names == ["MemoryAttention.write", "MemoryAttention.read"]
    assert whole["MemoryAttention.read"].shape == (2, 2, 3, 7)
    assert torch.equal(whole["MemoryAttention.read"].map[:, :, 2], state.read_weights)
    assert whole["MemoryAttention.read"].verify() < 1e-6
    assert whole["MemoryAttention.write"].verify() is None


def test_co_attention_and_hierarchies_are_recorded_call_by_call():
    torch.manual_seed(2)
    co = CoAttention(6, 6, hidden=5)
    with regard.capture(co) as trace:
        co(X, X[:, :5])
    assert len(trace) >= 2
    assert all(call.verify() < 1e-5 for call in trace)
    documents = HierarchicalAttention(6)
    with regard.capture(documents) as trace:
        counts = torch.tensor([[5, 2, 3], [1, 5, 0]])
        documents(
            torch.randn(2, 3, 5, 6), word_lengths=counts, sentence_lengths=torch.tensor([3, 2])
        )
    assert [call.shape for call in trace] == [(2, 3, 1, 5), (2, 1, 1, 3)]


def test_gumbel_noise_and_dropout_are_those_of_the_call():
    layer = MultiHeadAttention(6, heads=2, dropout=0.5).train()
    with regard.capture() as trace:
        layer(X)
        regard.attend(X, X, X, normalize="gumbel")
    assert trace.calls[0].verify() < 1e-6
    assert trace.calls[1].verify() < 1e-6
    one = trace["attend"]
    assert torch.allclose(one.of(1).map.dense(), one.map.dense()[1])


def test_the_gradient_of_weights_is_that_of_the_output_times_the_values():
    torch.manual_seed(2)
    query, key, value = (torch.randn(3, 2, 5, 7, requires_grad=True) for _ in range(3))
    factor = torch.randn(3, 2, 5, 7)
    with regard.capture(gradients=True) as trace:
        output = regard.attend(query, key, value)
    (call,) = trace
    assert call.gradient is None  # backward has not run
    (output * factor).sum().backward()
    expected = factor @ value.detach().mT
    assert torch.allclose(call.gradient.dense(), expected, atol=1e-6)
    assert torch.allclose(call.gradient[1, :, 3], expected[1, :, 3], atol=1e-6)
    assert torch.equal(call.of(2).gradient.dense(), call.gradient[2])
    assert torch.equal(call.select(heads=[1]).gradient.dense(), call.gradient[:, 1:])


def test_the_gradient_of_weights_goes_through_the_output_projection_of_torch():
    layer, x, factor = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(3, 5, 6), 1.5
    with regard.capture(layer, gradients=True) as trace:
        output = layer(x, x, x)[0]
    (output * factor).sum().backward()
    with torch.no_grad():
        weight, bias = layer.in_proj_weight[12:], layer.in_proj_bias[12:]
        value = (x @ weight.T + bias).unflatten(-1, (2, 3)).transpose(1, 2)  # (batch, heads, N, 3)
        context = factor * layer.out_proj.weight.sum(0).view(2, 1, 3)  # of every query
        expected = (context @ value.mT).expand(3, 2, 5, 5)
    assert torch.allclose(trace[0].gradient.dense(), expected, atol=1e-6)


def test_the_gradient_of_weights_is_that_before_dropout():
    value = torch.randn(2, 5, 7, requires_grad=True)
    with regard.capture(gradients=True) as trace:
        output = regard.attend(value, value, value, dropout=0.4)
    output.sum().backward()
    change = (trace[0].gradient.dense() * trace[0].map.dense()).sum((-1, -2))
    assert torch.allclose(change, output.sum((-1, -2))[:, None], atol=1e-5)


def test_the_gradient_of_a_call_is_the_sum_over_backward_passes_and_none_if_not_asked_for():
    layer, x = MultiHeadAttention(6, heads=2), torch.randn(1, 5, 6)
    with regard.capture(layer, gradients=True) as trace:
        y = layer(x)
    y.sum().backward(retain_graph=True)
    once = trace[0].gradient.dense()
    y.sum().backward()
    assert torch.allclose(trace[0].gradient.dense(), 2 * once)
    with regard.capture(layer) as trace:
        layer(x).sum().backward()
    assert trace[0].gradient is None
