"""The Transformer against torch's own, and what its options mean."""

import copy

import pytest
import torch
from torch import nn

import regard
from regard.layers import EfficientAttention, Learned, PositionalEncoding
from regard.models import Stack, Transformer, build, parameters
from tests.recorded import recorded

B, S, T, SOURCE, TARGET, DIM, HEADS, HIDDEN = 3, 7, 5, 13, 17, 12, 3, 11
LENGTHS = torch.tensor([7, 4, 2])
SIZES = {"dim": DIM, "heads": HEADS, "hidden": HIDDEN, "layers": 2}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(8)
    source = torch.randint(SOURCE, (B, S), generator=generator)
    return source, torch.randint(TARGET, (B, T), generator=generator)


def drawn(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.randn(parameter.shape, generator=generator) * 0.4
            parameter.copy_(values.to(parameter.dtype))
    return model


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's own advice to its users
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_with_the_weights_of_torch_it_gives_the_numbers_of_torch(norm_first, activation):
    theirs = nn.Transformer(
        DIM,
        HEADS,
        2,
        3,
        HIDDEN,
        dropout=0.1,
        activation=activation,
        norm_first=norm_first,
        batch_first=True,
        dtype=torch.float64,
    )
    theirs = drawn(theirs).eval()
    ours = Transformer.from_torch(theirs, SOURCE, TARGET, position="sinusoidal")
    assert len(ours.encoder.layers) == 2
    assert len(ours.decoder.layers) == 3
    source, target = inputs()
    hidden = torch.arange(S) >= LENGTHS[:, None]
    expected = theirs(
        ours.source_position(ours.source(source)),
        ours.target_position(ours.target(target)),
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    found = ours(source, LENGTHS, target)
    torch.testing.assert_close(found, expected)
    theirs.zero_grad()
    expected.square().sum().backward()
    wanted = theirs.encoder.layers[0].linear1.weight.grad
    found.square().sum().backward()
    torch.testing.assert_close(ours.encoder.layers[0].feed_forward.inner.weight.grad, wanted)
    with torch.no_grad():  # a copy, not the same tensors
        theirs.encoder.layers[0].linear1.weight.zero_()
    torch.testing.assert_close(ours(source, LENGTHS, target), found)


def test_an_efficient_encoder_is_the_equation_of_the_paper_in_value_and_gradient():
    """Shen et al. 2018, eq. 4, in each head of each layer, for one sentence at a time."""
    model = drawn(Transformer(SOURCE, TARGET, **SIZES, encoder_attention="efficient", dropout=0.0))
    model = model.double()
    source, _ = inputs()
    memory, maps = recorded(model, lambda: model.encode(source, LENGTHS))
    kept = list(model.source.parameters()) + list(model.encoder.parameters())
    found = torch.autograd.grad(memory.states.square().sum(), kept)
    total = 0.0
    for b, count in enumerate(LENGTHS.tolist()):
        x = model.source_position(model.source(source[b : b + 1, :count]))[0]
        for number, layer in enumerate(model.encoder.layers):
            inside = layer.attention
            q, k, v = (
                getattr(inside, f"{name}_projection")(x).unflatten(-1, (HEADS, -1))
                for name in ("query", "key", "value")
            )  # (count, heads, width)
            weights = torch.einsum("mhf,nhf->hmn", q.softmax(-1), k.softmax(0))
            y = inside.output_projection(torch.einsum("hmn,nhv->mhv", weights, v).flatten(1))
            x = layer.around_attention.norm(x + y)
            forward = layer.feed_forward
            y = forward.outer(forward.inner(x).relu())
            x = layer.around_feed_forward.norm(x + y)
            map = maps[f"encoder.layers.{number}.attention"][b]
            torch.testing.assert_close(map[:, :count, :count], weights)
            assert (map[:, :, count:] == 0).all()
        torch.testing.assert_close(memory.states[b, :count], x)
        total = total + x.square().sum()
    for mine, wanted in zip(found, torch.autograd.grad(total, kept), strict=True):
        torch.testing.assert_close(mine, wanted)


def test_an_efficient_encoder_leaves_the_decoder_as_it_is():
    model = Transformer(SOURCE, TARGET, **SIZES, encoder_attention="efficient", kv_heads=1)
    assert all(isinstance(one.attention, EfficientAttention) for one in model.encoder.layers)
    layer = model.decoder.layers[0]
    assert layer.attention.kv_heads == layer.memory_attention.kv_heads == 1
    plain = Transformer(SOURCE, TARGET, **SIZES)
    same = Transformer(SOURCE, TARGET, **SIZES, encoder_attention="efficient")
    assert parameters(same) == parameters(plain)


def test_what_an_efficient_encoder_implies_is_traced():
    model = Transformer(SOURCE, TARGET, **SIZES, encoder_attention="efficient").eval()
    source, target = inputs()
    with regard.capture(model) as trace:
        model(source, LENGTHS, target)
    calls = {call.name: call for call in trace.calls}
    call = calls["encoder.layers.1.attention"]
    assert (call.queries, call.keys) == ("source", "source")
    weights = call.map.dense()
    assert weights.shape == (B, HEADS, S, S)
    _, maps = recorded(model, lambda: model.encode(source, LENGTHS))
    torch.testing.assert_close(weights, maps[call.name])
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, HEADS, S))


def test_the_stacks_of_torch_without_a_last_norm_have_none_here():
    layer = nn.TransformerEncoderLayer(DIM, HEADS, HIDDEN, batch_first=True, dtype=torch.float64)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(B, S, DIM, dtype=torch.float64)
    torch.testing.assert_close(Stack.from_torch(theirs)(x), theirs(x))
    layer = nn.TransformerDecoderLayer(DIM, HEADS, HIDDEN, batch_first=True, dtype=torch.float64)
    theirs = nn.TransformerDecoder(layer, 2).eval()
    y = torch.randn(B, T, DIM, dtype=torch.float64)
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    found = Stack.from_torch(theirs)(y, x)
    torch.testing.assert_close(found, theirs(y, x, tgt_mask=later))


def test_embeddings_are_scaled_and_placed_as_in_the_paper():
    model = Transformer(SOURCE, TARGET, **SIZES, dropout=0.0).double()
    source, _ = inputs()
    x = PositionalEncoding(DIM)(model.source.weight[source] * DIM**0.5)
    for layer in model.encoder.layers:
        x = layer(x)
    torch.testing.assert_close(model.encode(source).states, x)
    assert model.source.weight.std().item() == pytest.approx(DIM**-0.5, rel=0.3)


def test_post_norm_ends_with_a_layer_and_pre_norm_with_a_norm():
    post, pre = (Transformer(SOURCE, TARGET, **SIZES, norm=norm) for norm in ("post", "pre"))
    assert isinstance(post.encoder.norm, nn.Identity)
    assert isinstance(pre.encoder.norm, nn.LayerNorm)
    assert isinstance(pre.decoder.norm, nn.LayerNorm)


def test_order_matters_with_any_position_scheme_and_with_none_it_does_not():
    source, target = inputs()
    turned = source[:, [3, 1, 2, 0, 4, 6, 5]]  # ALiBi would not notice a reversal
    for position in ("sinusoidal", "learned", "rotary", "alibi", "none"):
        model = drawn(Transformer(SOURCE, TARGET, **SIZES, position=position, dropout=0.0))
        # without positions the encoder is equivariant, and the decoder's sum over it invariant
        same = torch.allclose(
            model(source, None, target), model(turned, None, target), atol=1e-4, rtol=1e-4
        )
        assert same == (position == "none"), position


def test_learned_positions_of_both_sides_are_two_tables():
    model = Transformer(SOURCE, TARGET, **SIZES, position="learned", max_length=S)
    assert isinstance(model.source_position, Learned)
    assert model.source_position.weight is not model.target_position.weight


def test_tied_embeddings_are_one_matrix():
    model = Transformer(TARGET, TARGET, **SIZES, tie="all")
    assert model.source.weight is model.target.weight is model.output.weight
    free = Transformer(TARGET, TARGET, **SIZES)
    assert parameters(free) - parameters(model) == 2 * TARGET * DIM
    other = copy.deepcopy(model)
    assert other.source.weight is other.output.weight
    other.load_state_dict(model.state_dict())
    source, target = torch.randint(TARGET, (B, S)), torch.randint(TARGET, (B, T))
    other.eval()
    model.eval()
    assert torch.equal(other(source, LENGTHS, target), model(source, LENGTHS, target))


def test_attention_dropout_may_be_another():
    model = Transformer(SOURCE, TARGET, **SIZES, dropout=0.3, attention_dropout=0.1)
    layer = model.decoder.layers[0]
    assert layer.attention.dropout == layer.memory_attention.dropout == 0.1
    assert model.encoder.layers[1].attention.dropout == 0.1
    assert layer.around_attention.dropout == 0.3
    plain = Transformer(SOURCE, TARGET, **SIZES, dropout=0.3)
    assert plain.decoder.layers[0].attention.dropout == 0.3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tie": "everything"}, "unknown tie 'everything'"),
        ({"tie": "all"}, "13 source and 17 target"),
        ({"norm": "prenorm"}, "unknown norm 'prenorm'; did you mean 'pre'"),
        ({"position": "sinus"}, "did you mean 'sinusoidal'"),
        ({"heads": 5}, "multiple of heads"),
        ({"dropout": 1.5}, "probability"),
        ({"attention_dropout": -1.0}, "probability"),
        ({"layers": 0}, "layers must be 1 or more"),
        ({"frames": 3}, "give either source_vocabulary or frames"),
        ({"position": "rotary", "heads": 4}, "even"),
        ({"encoder_attention": "eficient"}, "did you mean 'efficient'"),
        ({"encoder_attention": "efficient", "position": "alibi"}, "use position='sinusoidal'"),
    ],
)
def test_bad_configuration_raises_a_helpful_error(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Transformer(SOURCE, TARGET, **(SIZES | options))


def test_frames_cannot_share_an_embedding():
    with pytest.raises(ValueError, match="needs a source of tokens"):
        Transformer(None, TARGET, **SIZES, frames=3, tie="all")


def test_the_three_attentions_have_explicit_roles() -> None:
    from regard.layers.role import AttentionRole

    model = build("transformer", "tiny", source_vocabulary=13, target_vocabulary=17)
    copied = Transformer.from_torch(torch.nn.Transformer(12, 4, 1, 1, 24, batch_first=True), 13, 17)
    for each in (model, copied):
        roles = {
            name.rpartition(".")[2] + name[:2]: module.role
            for name, module in each.named_modules()
            if isinstance(getattr(module, "role", None), AttentionRole)
        }
        assert roles == {
            "attentionen": ("encoder self-attention", "source", "source"),
            "attentionde": ("masked decoder self-attention", "target", "target"),
            "memory_attentionde": ("encoder–decoder attention", "target", "source"),
        }


def test_sublayers_of_post_norm_add_little_at_the_start():
    def sizes(norm: str) -> dict[str, float]:
        model = Transformer(SOURCE, TARGET, norm=norm, dim=64, heads=2, hidden=64, layers=2)
        layer = model.decoder.layers[1].memory_attention
        names = ("query_projection", "key_projection", "value_projection", "output_projection")
        return {name: getattr(layer, name).weight.std().item() for name in names}

    glorot, gain = (2 / (64 + 64)) ** 0.5, (8 * 2) ** -0.25  # Wang et al. 2022, figure 2
    assert all(abs(size / glorot - 1) < 0.1 for size in sizes("pre").values())
    query, key, value, output = (size / glorot for size in sizes("post").values())
    assert abs(query - 1) < 0.1 > abs(key - 1)
    assert abs(value / gain - 1) < 0.1 > abs(output / gain - 1)
