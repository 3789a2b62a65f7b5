"""Torch's own attention is recorded, true to what it gave, and gives the same bits."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.trace import edit

# torch warns of its own fast paths
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]

X = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))
Y = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(2))
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
TRIANGLE = nn.Transformer.generate_square_subsequent_mask(5)


class Foreign(nn.Module):
    """What other people write around `F.scaled_dot_product_attention`."""

    def forward(self, q, k, v, **options):
        return F.scaled_dot_product_attention(q, k, v, **options)


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.5},
        {"attn_mask": ~PADDING[:, None, None].expand(2, 1, 5, 5)},
        {"attn_mask": torch.randn(3, 5, 5)},
        {"attn_mask": TRIANGLE},
    ],
    ids=["plain", "causal", "scale", "bool", "bias", "-inf"],
)
def test_scaled_dot_product_attention_is_recorded(options):
    model, q = Foreign(), heads(X, 3)
    before = model(q, q, q, **options)
    with regard.capture(model) as trace:
        during = model(q, q, q, **options)
    assert torch.equal(before, during)
    (call,) = trace
    assert call.name == "Foreign"
    assert call.shape == (2, 3, 5, 5)
    assert torch.allclose(call.map.dense() @ q, before, atol=1e-6)
    assert call.verify() < 1e-6
    assert call.inputs.query.shape == (2, 3, 5, 4)
    assert torch.allclose(call.of(1).map.dense(), call.map.dense()[1], atol=1e-6)


def test_the_first_query_of_torchs_causal_mask_sees_the_first_key_alone():
    model, q, k = Foreign(), heads(X, 3), heads(Y, 3)
    with regard.capture(model) as trace:
        model(q, k, k, is_causal=True)
    map = trace.calls[0].map.dense()
    assert torch.equal(map[..., 0, 1:], torch.zeros(2, 3, 6))
    assert trace.calls[0].verify() < 1e-6


def test_heads_that_share_keys_are_recorded_one_by_one():
    model, q, k = Foreign(), heads(X, 6), heads(Y[..., :6], 3)
    mask = torch.rand(2, 6, 5, 7) < 0.8
    with regard.capture(model) as trace:
        output = model(q, k, k, attn_mask=mask, enable_gqa=True)
    (call,) = trace
    assert call.shape == (2, 6, 5, 7)
    repeated = k.repeat_interleave(2, dim=1)
    assert torch.allclose(call.map.dense() @ repeated, output, atol=1e-6)
    assert call.verify() < 1e-6


def test_torchs_dropout_cannot_be_repeated_and_raises():
    model, q = Foreign(), heads(X, 3)
    with regard.capture(model) as trace:
        model(q, q, q, dropout_p=0.5)
    assert trace.calls[0].verify() is None
    assert torch.allclose(trace.calls[0].map.dense().sum(-1), torch.ones(2, 3, 5))


@pytest.mark.parametrize(
    ("batch_first", "need_weights", "grad"), [*product([True, False], repeat=3)]
)
@pytest.mark.parametrize("mask", ["none", "padding", "triangle", "both", "heads"])
def test_multi_head_attention_is_recorded_on_each_of_its_paths(
    batch_first, need_weights, grad, mask
):
    torch.manual_seed(3)
    model = nn.MultiheadAttention(12, 4, batch_first=batch_first).eval()
    x = X if batch_first else X.transpose(0, 1)
    options: dict = {"need_weights": need_weights, "average_attn_weights": False}
    if mask in ("padding", "both"):
        options["key_padding_mask"] = PADDING
    if mask in ("triangle", "both"):
        options["attn_mask"] = TRIANGLE < 0
    if mask == "heads":
        options["attn_mask"] = torch.zeros(8, 5, 5).masked_fill(torch.eye(5, 5).bool(), -torch.inf)
    with torch.set_grad_enabled(grad):
        before, _ = model(x, x, x, **options)
        with regard.capture(model) as trace:
            during, _ = model(x, x, x, **options)
        _, expected = model(x, x, x, **{**options, "need_weights": True})
    assert torch.equal(before, during)
    (call,) = trace
    assert torch.allclose(call.map.dense(), expected, atol=1e-6)
    assert call.verify() < 1e-6


@pytest.mark.parametrize(
    "options",
    [{"kdim": 7, "vdim": 5}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}],
    ids=str,
)
def test_the_rarer_kinds_of_multi_head_attention_are_recorded(options):
    torch.manual_seed(4)
    model = nn.MultiheadAttention(12, 3, batch_first=True, **options)
    key, value = Y[..., : options.get("kdim", 12)], Y[..., : options.get("vdim", 12)]
    with regard.capture(model) as trace:
        _, weights = model(X, key, value, average_attn_weights=False)
    assert trace.calls[0].shape == weights.shape
    assert torch.allclose(trace.calls[0].map.dense(), weights, atol=1e-6)
    assert trace.calls[0].verify() < 1e-6


def test_a_single_sequence_is_a_batch_of_one():
    model = nn.MultiheadAttention(12, 3)
    with regard.capture(model) as trace:
        _, weights = model(X[0], Y[0], Y[0], average_attn_weights=False)
    assert torch.allclose(trace.calls[0].map.dense()[0], weights, atol=1e-6)
    assert trace.calls[0].verify() < 1e-6


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_transformer_of_torch_is_recorded_with_both_its_sides(train, norm_first):
    torch.manual_seed(5)
    model = nn.Transformer(
        12, 4, 2, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first
    ).train(train)
    options = {"src_key_padding_mask": PADDING, "memory_key_padding_mask": PADDING}
    options |= {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(7) < 0}
    with torch.no_grad():
        before = model(X, Y, **options)
        with regard.capture(model) as trace:
            during = model(X, Y, **options)
    assert torch.equal(before, during)
    assert trace.names == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        *(f"decoder.layers.{i}.{n}" for i in (0, 1) for n in ("self_attn", "multihead_attn")),
    ]
    assert trace["encoder.layers.0.self_attn"].keys == "source"
    assert trace["decoder.layers.1.self_attn"].keys == "target"
    cross = trace["decoder.layers.1.multihead_attn"]
    assert (cross.queries, cross.keys, cross.shape) == ("target", "source", (2, 4, 7, 5))
    assert torch.equal(cross.map[1, ..., 3:], torch.zeros(4, 7, 2))
    for call in trace:
        assert call.verify() < 1e-5


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("mask", ["none", "padding", "triangle"])
def test_torchs_fast_encoder_stays_fast_and_is_true(activation, norm_first, mask):
    torch.manual_seed(6)
    layer = nn.TransformerEncoderLayer(
        12, 2, 16, batch_first=True, activation=activation, norm_first=norm_first
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    options: dict = {}
    if mask == "padding":
        options["src_key_padding_mask"] = PADDING
    if mask == "triangle":
        options["mask"] = TRIANGLE < 0
    with torch.no_grad():
        before = model(X, **options)
        with regard.capture(model) as trace:
            during = model(X, **options)
    assert torch.equal(before, during)
    assert trace.names == ["layers.0.self_attn", "layers.1.self_attn"]
    assert {call.provenance["path"] for call in trace} == {"transformer_encoder_layer"}
    assert all(call.verify() < 1e-5 for call in trace)


def test_nested_tensors_are_recorded_with_their_padding():
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(12, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    nested = torch.nested.nested_tensor([X[0], X[1, :3]])
    with torch.no_grad(), regard.capture(model) as trace:
        model.layers[0](nested)
    (call,) = trace
    assert call.shape == (2, 2, 5, 5)
    assert torch.equal(call.map[1, ..., 3:], torch.zeros(2, 5, 2))
    assert call.verify() < 1e-5


def test_parameters_that_changed_since_are_reported():
    model = nn.MultiheadAttention(12, 3)
    with regard.capture(model) as trace, torch.no_grad():
        model(X, X, X)
        model.in_proj_weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="in_proj_weight of this call changed in place"):
        trace.calls[0].map.dense()


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_is_edited_as_by_a_mask(average, batch_first):
    model = nn.MultiheadAttention(12, 3, batch_first=batch_first).eval()
    x = X if batch_first else X.transpose(0, 1)
    options = {"average_attn_weights": average}
    hidden = torch.zeros(5, 5, dtype=torch.bool)
    hidden[:, 2] = True
    with torch.no_grad():
        expected, weights = model(x, x, x, attn_mask=hidden, **options)
        with edit(model, keys=[2]):
            found, shown = model(x, x, x, **options)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(shown, weights, atol=1e-6)


def test_an_encoder_of_torch_is_edited_on_its_way_and_fast_again_after_it():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, 16, batch_first=True), 2).eval()
    hidden = torch.zeros(5, 5, dtype=torch.bool)
    hidden[:, 2] = True
    with torch.no_grad():
        before = model(X)
        with edit(model, keys=[2]), regard.capture(model) as trace:
            found = model(X)
        assert torch.allclose(found, model(X, mask=hidden), atol=1e-5)
        assert torch.equal(before, model(X))
    assert trace.names == ["layers.0.self_attn", "layers.1.self_attn"]
    assert all(float(call.map[..., 2].max()) == 0.0 for call in trace)
    assert all(call.verify() < 1e-6 for call in trace)


def test_torchs_dropout_cannot_be_edited():
    model = nn.MultiheadAttention(12, 3, dropout=0.5, batch_first=True).train()
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"), edit(model, keys=[0]):
        model(X, X, X)
