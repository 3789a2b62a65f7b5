"""The steps of attention against the formulas, written out with the weights of each layer."""

import math

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.analysis.steps import Steps, attention_steps
from regard.layers import MultiHeadAttention, Rotary, TorchMultiheadAttention


def steps_of(model: nn.Module, *inputs: Tensor, example: int = 1, **options: object) -> Steps:
    with torch.no_grad(), regard.capture(model, inputs=True) as trace:
        model(*inputs, **options)
    found = attention_steps(trace.of(example).calls[0])
    assert found is not None
    return found


def heads(x: Tensor, count: int) -> Tensor:
    """(length, heads · width) to (heads, length, width)."""
    return torch.stack(x.chunk(count, dim=-1))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def same(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right.float(), atol=1e-5)


def test_multi_head_attention_from_x_to_w_o() -> None:
    layer = MultiHeadAttention(6, heads=2, key_dim=5, value_dim=7, inner_dim=8, out_dim=3).double()
    x, y, z = (torch.randn(2, n, d).double() for n, d in ((3, 6), (4, 5), (4, 7)))
    found = steps_of(layer, x, y, z, mask=regard.lengths([4, 3]))
    t = found.tensors
    assert same(t["input_query"], x[1:])
    assert same(t["input_key"], y[1:])
    assert same(t["input_value"], z[1:])

    def linear(part: nn.Linear, x: Tensor) -> Tensor:
        return x @ part.weight.T + part.bias

    q = heads(linear(layer.query_projection, x[1]), 2)
    k = heads(linear(layer.key_projection, y[1]), 2)
    v = heads(linear(layer.value_projection, z[1]), 2)
    for name, expected in (("query", q), ("key", k), ("value", v)):
        assert same(t[name], expected)
    scores = q @ k.mT / math.sqrt(4)
    scores[..., 3] = -math.inf  # hidden by the mask
    sums = scores.softmax(-1) @ v
    assert (found.score, found.form, found.normalizer) == ("scaled_dot", "dot", "softmax")
    assert (found.has_bias, found.has_mask, found.has_projections) == (False, True, True)
    assert found.scale == pytest.approx(0.5)
    assert same(t["scores"], scores)
    assert same(t["sums"], sums)
    assert same(t["output"][0], linear(layer.output_projection, torch.cat([*sums], dim=-1)))
    assert "projected_query" not in t
    assert found.missing == {}
    for name, own, made in (("query", x, q), ("key", y, k), ("value", z, v)):
        assert same(own[1].float() @ t[f"{name}_weight"] + t[f"{name}_bias"], made)
    joined = torch.cat([*sums], dim=-1).float()
    assert same(joined @ t["output_weight"][0] + t["output_bias"][0], t["output"][0])


def test_queries_before_and_after_rotation_and_shared_keys() -> None:
    layer = MultiHeadAttention(8, heads=4, kv_heads=2, position=Rotary(2), bias=False)
    x = torch.randn(2, 5, 8)
    t = steps_of(layer, x).tensors
    q, k = heads(layer.query_projection(x[1]), 4), heads(layer.key_projection(x[1]), 2)
    assert same(t["projected_query"], q)
    assert same(t["projected_key"], k.repeat_interleave(2, 0))
    assert same(t["query"][:, 0], q[:, 0])  # position 0 is not rotated
    assert not same(t["query"][:, 1:], q[:, 1:])
    assert same(t["output"][0], layer(x)[1])


@pytest.mark.parametrize("score", ["additive", "concat"])
def test_an_additive_score_from_both_projections_to_w(score: str) -> None:
    model = regard.models.build(
        "luong", source_vocabulary=7, target_vocabulary=11, hidden=5, embedding=3, score=score
    ).eval()
    with torch.no_grad(), regard.capture(model, inputs=True) as trace:
        memory = model.encode(torch.tensor([[4, 5, 6]]))
        model.decode(memory, torch.tensor([[1, 4, 5, 6]]))
    found = attention_steps(trace.stitched().of(0).calls[0])
    assert found is not None
    t, module = found.tensors, model.decoder.attention.score
    states = memory.states[0]
    if score == "additive":
        first, second = module.query_weight, module.key_weight
    else:
        first, second = module.weight[:, :5], module.weight[:, 5:]
    left, right = t["query"][0] @ first.T, states @ second.T
    assert same(t["key"][0], states)
    assert same(t["value"][0], states)
    assert same(t["left"][0], left)
    assert same(t["right"][0], right)
    scores = (left[:, None] + right[None]).tanh() @ module.vector
    assert found.form == "additive"
    assert not found.has_projections
    assert same(t["scores"][0], scores)
    assert same(t["sums"][0], scores.softmax(-1) @ states)
    assert found.missing == {}


@pytest.mark.parametrize("score", ["general", "biased_general", "activated_general"])
def test_the_factor_of_a_learned_score_is_in_its_matrix(score: str) -> None:
    model = regard.models.build(
        "luong", source_vocabulary=7, target_vocabulary=11, hidden=5, embedding=3, score=score
    ).eval()
    module = model.decoder.attention.score
    nn.init.normal_(module.bias if score != "general" else module.weight)
    with torch.no_grad(), regard.capture(model, inputs=True) as trace:
        memory = model.encode(torch.tensor([[4, 5, 6]]))
        model.decode(memory, torch.tensor([[1, 4, 5, 6]]))
    found = attention_steps(trace.stitched().of(0).calls[0])
    assert found is not None
    t = found.tensors
    assert module.scale != 1
    assert (found.score, found.scale) == (score, 1.0)
    assert same(t["right"][0], memory.states[0])
    scores = t["left"] @ t["right"].mT
    if score == "activated_general":
        scores = (scores + found.offset).tanh()
        assert found.offset == pytest.approx(module.bias.item())
    assert same(t["scores"], scores)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_layers_of_torch_begin_with_their_input(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 4, 16, batch_first=True, norm_first=norm_first).eval()
    x = torch.randn(2, 5, 8)
    before = layer.norm1(x) if norm_first else x
    own = layer.self_attn
    q, k, v = (
        heads(x @ w.T + b, 4)
        for x, w, b in zip(
            [before[1]] * 3,
            own.in_proj_weight.chunk(3),
            own.in_proj_bias.chunk(3),
            strict=True,
        )
    )
    output = own(before, before, before)[0][1]
    drop_in = TorchMultiheadAttention(8, 4, batch_first=True)
    drop_in.load_state_dict(own.state_dict())
    for model, inputs in ((layer, (x,)), (own, (before,) * 3), (drop_in, (before,) * 3)):
        t = steps_of(model, *inputs).tensors
        assert same(t["input_query"][0], before[1])
        assert same(t["query"], q)
        assert same(t["key"], k)
        assert same(t["value"], v)
        assert same(t["output"][0], output)


@pytest.mark.parametrize("name", ["GPT2", "Bert", "Llama", "T5Encoder"])
def test_layers_of_transformers_begin_with_their_input(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    sizes |= {"intermediate_size": 16, "num_key_value_heads": 1} if name == "Llama" else {}
    if name == "T5Encoder":
        sizes = {"vocab_size": 11, "d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1}
    config = getattr(transformers, f"{name.removesuffix('Encoder')}Config")(**sizes)
    model = getattr(transformers, f"{name}Model")(config).eval()
    t = steps_of(model, torch.tensor([[3, 5, 7, 2], [1, 2, 3, 4]])).tensors
    names = {"Bert": ("query", "value"), "Llama": ("q_proj", "v_proj"), "T5Encoder": ("q", "v")}
    first, last = names.get(name, ("c_attn", "c_attn"))
    part = next(each for each in model.modules() if hasattr(each, first))
    q, v = (getattr(part, each)(t["input_query"][0]) for each in (first, last))
    if name == "GPT2":  # all three in one
        q, v = q[:, :8], v[:, 16:]
    assert same(t.get("projected_query", t["query"]), heads(q, 2))
    assert same(t["value"][:1], heads(v, 2)[:1] if v.shape[-1] == 8 else v[None])
    assert ("projected_query" in t) == (name == "Llama")


def test_weights_are_those_of_the_call_and_not_of_later() -> None:
    layer, x = MultiHeadAttention(6, heads=2), torch.randn(1, 5, 6)
    with torch.no_grad(), regard.capture(layer, inputs=True) as trace:
        before = layer(x)
        for parameter in layer.parameters():
            parameter.mul_(2)
    found = attention_steps(trace.of(0).calls[0])
    assert found is not None
    assert found.missing == {}
    assert same(found.tensors["output"], before)


def test_missing_steps_have_reasons() -> None:
    layer, x = MultiHeadAttention(6, heads=2), torch.randn(1, 5, 6)
    with torch.no_grad(), regard.capture(layer) as trace:
        layer(x)
    call = trace.of(0).calls[0]
    assert attention_steps(call).missing == {"input_query": "inputs"}
    assert attention_steps(call.select(heads=[1])).missing["output"] == "selected"
    with torch.no_grad(), regard.capture(layer, inputs=True) as trace:
        state = layer.start(1)
        for position in range(3):
            _, state = layer.step(x[:, position : position + 1], state)
    assert attention_steps(trace.of(0).calls[2]).missing == {"input_query": "earlier"}
    assert (
        attention_steps(regard.trace.Trace.of_maps({"a": torch.eye(2)}, queries="ab")["a"]) is None
    )


def test_a_selection_keeps_the_numbers_of_its_heads_and_rows() -> None:
    layer, x = MultiHeadAttention(6, heads=3), torch.randn(1, 5, 6)
    with torch.no_grad(), regard.capture(layer, inputs=True) as trace:
        layer(x, mask=regard.causal())
    call = trace.of(0).calls[0]
    whole, part = attention_steps(call), attention_steps(call.select([2, 0], slice(1, 4)))
    assert same(part.tensors["input_query"], x[:, 1:4])
    for name in ("query", "scores", "sums"):
        assert same(part.tensors[name], whole.tensors[name][[2, 0], 1:4])


def test_the_output_of_a_model_is_the_same_while_inputs_are_recorded() -> None:
    model = regard.models.build("transformer", "tiny", source_vocabulary=7, target_vocabulary=11)
    source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[1, 4, 5]])
    with torch.no_grad():
        plain = model.eval()(source, None, target)
        with regard.capture(model, inputs=True) as trace:
            recorded = model(source, None, target)
    assert torch.equal(plain, recorded)
    assert all(attention_steps(call).missing == {} for call in trace.of(0))
    hooks = [each for module in model.modules() for each in module._forward_pre_hooks]
    assert hooks == []
