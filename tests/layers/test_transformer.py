"""Encoder and decoder layers against torch's own with the same weights, and step by step."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.layers import (
    ALiBi,
    DecoderLayer,
    EfficientAttention,
    EncoderLayer,
    Learned,
    PostNorm,
    PreNorm,
    Rotary,
)
from tests.recorded import recorded

B, M, N, DIM, HEADS, HIDDEN = 3, 5, 7, 12, 6, 11
ORDERS = {"post": PostNorm, "pre": PreNorm}


def double(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def randomized(layer: nn.Module) -> nn.Module:
    """All parameters drawn, because zero biases and unit norms would hide mistakes."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in layer.parameters():
            values = torch.randn(parameter.shape, generator=generator) * 0.4
            parameter.copy_(values.to(parameter.dtype))
    return layer


def decoder(**options) -> DecoderLayer:
    return randomized(DecoderLayer(DIM, HEADS, HIDDEN, **options).double())


def encoder(**options) -> EncoderLayer:
    return randomized(EncoderLayer(DIM, HEADS, HIDDEN, **options).double())


# ------------------------------------------------------------------ the equations


def test_the_two_orders_are_those_of_the_papers():
    x = double(B, M, DIM)
    for order in ORDERS.values():
        layer = encoder(add_norm=order)
        attention, feed = layer.attention, layer.feed_forward
        first, second = layer.around_attention.norm, layer.around_feed_forward.norm
        if order is PostNorm:
            y = first(x + attention(x))
            expected = second(y + feed(y))
        else:
            y = x + attention(first(x))
            expected = y + feed(second(y))
        torch.testing.assert_close(layer(x), expected)


def test_any_norm_may_be_injected():
    layer = encoder(add_norm=functools.partial(PreNorm, norm=nn.RMSNorm))
    assert isinstance(layer.around_attention.norm, nn.RMSNorm)
    assert layer(double(B, M, DIM)).shape == (B, M, DIM)


# ------------------------------------------------------------------ torch's own


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_layer_with_torch_weights_gives_the_same_numbers(
    norm_first, activation, bias, batch_first
):
    theirs = nn.TransformerEncoderLayer(
        DIM,
        HEADS,
        HIDDEN,
        activation=activation,
        norm_first=norm_first,
        bias=bias,
        batch_first=batch_first,
        layer_norm_eps=1e-3,
        dropout=0.0,
        dtype=torch.float64,
    )
    ours = EncoderLayer.from_torch(randomized(theirs))
    x = double(B, N, DIM).requires_grad_()
    hidden = torch.tensor([[False] * 4 + [True] * 3, [False] * 7, [False] * 6 + [True]])
    later = torch.ones(N, N, dtype=torch.bool).triu(1)
    inputs = x if batch_first else x.transpose(0, 1)
    expected = theirs(inputs, src_mask=later, src_key_padding_mask=hidden)
    expected = expected if batch_first else expected.transpose(0, 1)
    output = ours(x, mask=regard.from_torch_mha(later, hidden))
    torch.testing.assert_close(output, expected)
    wanted = torch.autograd.grad(expected.square().sum(), [x, theirs.linear1.weight])
    found = torch.autograd.grad(output.square().sum(), [x, ours.feed_forward.inner.weight])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", F.gelu])
@pytest.mark.parametrize("bias", [True, False])
def test_a_decoder_layer_with_torch_weights_gives_the_same_numbers(norm_first, activation, bias):
    theirs = nn.TransformerDecoderLayer(
        DIM,
        HEADS,
        HIDDEN,
        activation=activation,
        norm_first=norm_first,
        bias=bias,
        batch_first=True,
        dropout=0.0,
        dtype=torch.float64,
    )
    ours = DecoderLayer.from_torch(randomized(theirs))
    x, memory = double(B, M, DIM).requires_grad_(), double(B, N, DIM, seed=1).requires_grad_()
    own = torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 3 + [True] * 2])
    hidden = torch.tensor([[False] * 4 + [True] * 3, [False] * 7, [False] * 6 + [True]])
    later = torch.ones(M, M, dtype=torch.bool).triu(1)
    expected = theirs(
        x, memory, tgt_mask=later, tgt_key_padding_mask=own, memory_key_padding_mask=hidden
    )
    output = ours(
        x,
        memory,
        mask=regard.from_torch_mha(None, own),
        memory_mask=regard.from_torch_mha(None, hidden),
    )
    torch.testing.assert_close(output, expected)
    wanted = torch.autograd.grad(expected.square().sum(), [x, memory])
    found = torch.autograd.grad(output.square().sum(), [x, memory])
    torch.testing.assert_close(found, wanted)


def test_torch_layers_keep_their_dtype_dropout_and_mode():
    theirs = nn.TransformerDecoderLayer(DIM, HEADS, HIDDEN, dropout=0.3, dtype=torch.bfloat16)
    ours = DecoderLayer.from_torch(theirs.eval())
    assert not ours.training
    assert not ours.around_attention.training
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16}
    parts = [ours.attention, ours.memory_attention, ours.feed_forward, ours.around_attention]
    assert [part.dropout for part in parts] == [0.3] * 4
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


# ------------------------------------------------------------------ masks and maps


def test_no_position_of_a_decoder_attends_to_a_later_one():
    layer = decoder()
    x, memory = double(B, M, DIM), double(B, N, DIM, seed=1)
    changed = x.clone()
    changed[:, 3:] = 5.0
    first, second = layer(x, memory), layer(changed, memory)
    torch.testing.assert_close(first[:, :3], second[:, :3])
    assert (first[:, 3:] - second[:, 3:]).abs().max() > 0.1


@pytest.mark.parametrize("order", ORDERS)
def test_the_maps_are_those_of_the_attentions_inside(order):
    layer = decoder(add_norm=ORDERS[order], kv_heads=2)
    x, memory = double(B, M, DIM), double(B, N, DIM, seed=1)
    mask = regard.lengths([N, 3, 0])
    output, maps = recorded(layer, lambda: layer(x, memory, memory_mask=mask))
    assert torch.equal(output, layer(x, memory, memory_mask=mask))
    around = layer.around_attention
    entered = around.enter(x)
    y, own = layer.attention(entered, mask=regard.causal(), return_map=True)
    torch.testing.assert_close(maps["attention"], own.dense())
    entered = layer.around_memory_attention.enter(around.leave(x, y))
    _, crossed = layer.memory_attention(entered, memory, mask=mask, return_map=True)
    torch.testing.assert_close(maps["memory_attention"], crossed.dense())
    assert maps["memory_attention"].shape == (B, HEADS, M, N)


# ------------------------------------------------------------------ decoding


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize(
    "position", [None, Rotary(2), ALiBi(6), Learned(DIM, 40)], ids=lambda p: type(p).__name__
)
def test_steps_of_an_encoder_layer_equal_the_causal_pass(order, kv_heads, position):
    check_steps(encoder(add_norm=ORDERS[order], kv_heads=kv_heads, position=position))


def test_steps_of_an_encoder_layer_with_efficient_attention_equal_the_causal_pass():
    check_steps(encoder(attention=EfficientAttention))


def check_steps(layer: EncoderLayer) -> None:
    x = double(B, 19, DIM)
    with torch.no_grad():
        full = layer(x, mask=regard.causal())
        state, outputs = layer.start(B), []
        for t in range(x.shape[1]):
            y, state = layer.step(x[:, t : t + 1], state)
            outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), full)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("grad", [True, False])
def test_steps_of_a_decoder_layer_equal_the_full_pass_under_beam_reordering(order, grad):
    layer = decoder(add_norm=ORDERS[order], kv_heads=3, position=Rotary(2), memory_dim=13)
    sentences, beams, length = 2, 3, 18
    memory, lengths = double(sentences, N, 13, seed=1), torch.tensor([N, 3])
    generator = torch.Generator().manual_seed(3)
    with torch.set_grad_enabled(grad):
        state = layer.start(sentences, memory, regard.lengths(lengths))
        owner = torch.arange(sentences).repeat_interleave(beams)
        state = state.reorder(owner)  # one beam becomes three
        history = double(sentences * beams, 0, DIM)
        for t in range(length):
            x = double(len(owner), 1, DIM, seed=10 + t)
            y, state = layer.step(x, state)
            history = torch.cat([history, x], dim=1)
            full = layer(history, memory[owner], memory_mask=regard.lengths(lengths[owner]))
            torch.testing.assert_close(y, full[:, -1:])
            if t == length - 4:  # the first sentence is done
                index = torch.arange(beams, 2 * beams)
            elif t > length - 4:
                index = torch.randint(beams, (beams,), generator=generator)
            else:
                own = torch.randint(beams, (sentences, beams), generator=generator)
                index = (own + beams * torch.arange(sentences)[:, None]).flatten()
            state, history, owner = state.reorder(index), history[index], owner[index]


def test_a_step_gives_the_rows_of_both_maps():
    layer = decoder(kv_heads=2)
    x, memory = double(B, M, DIM), double(B, N, DIM, seed=1)
    mask = regard.lengths([N, 3, 1])
    _, maps = recorded(layer, lambda: layer(x, memory, memory_mask=mask))
    state = layer.start(B, memory, mask)
    for t in range(M):
        (_, state), rows = recorded(layer, lambda: layer.step(x[:, t : t + 1], state))  # noqa: B023
        torch.testing.assert_close(rows["attention"], maps["attention"][:, :, t : t + 1, : t + 1])
        row = maps["memory_attention"][:, :, t : t + 1]
        torch.testing.assert_close(rows["memory_attention"], row)


# ------------------------------------------------------------------ as a module


@pytest.mark.parametrize("train", [True, False])
def test_sequences_of_a_batch_do_not_influence_each_other(train):
    torch.manual_seed(0)
    layer = DecoderLayer(DIM, HEADS, HIDDEN, dropout=0.3).train(train)
    x, memory = torch.randn(B, 33, DIM), torch.randn(B, 29, DIM)
    other, other_memory = x.clone(), memory.clone()
    other[1], other_memory[1] = torch.randn(33, DIM) * 9, torch.randn(29, DIM) * 9
    outputs = []
    for inputs in ((x, memory), (other, other_memory)):
        torch.manual_seed(1)
        outputs.append(layer(*inputs, memory_mask=regard.lengths([29, 11, 3])))
    assert torch.equal(outputs[0][[0, 2]], outputs[1][[0, 2]])
    assert not torch.equal(outputs[0][1], outputs[1][1])


def test_nan_in_the_padding_of_a_memory_reaches_no_output_and_no_gradient():
    layer = decoder()
    memory = double(B, N, DIM)
    memory[0, 4:] = math.nan
    output = layer(double(B, M, DIM), memory, memory_mask=regard.lengths([4, N, 2]))
    output.sum().backward()
    assert output.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_dropout_falls_in_train_mode_only():
    layer = decoder(dropout=0.5)
    x, memory = double(B, M, DIM), double(B, N, DIM, seed=1)
    assert not torch.equal(layer(x, memory), layer(x, memory))
    layer.eval()
    torch.testing.assert_close(layer(x, memory), decoder()(x, memory))


def test_a_bad_configuration_raises_a_helpful_error():
    with pytest.raises(ValueError, match="try dim=9 or dim=12"):
        EncoderLayer(10, 3, 7)
    with pytest.raises(ValueError, match="are options of multi-head attention"):
        EncoderLayer(12, 3, 7, attention=EfficientAttention, kv_heads=1)
    with pytest.raises(ValueError, match="multiple of kv_heads"):
        DecoderLayer(12, 3, 7, kv_heads=2)
    with pytest.raises(ValueError, match="dropout should be at least 0"):
        DecoderLayer(12, 3, 7, dropout=1.5)
    with pytest.raises(ValueError, match="dropout should be at least 0"):
        PreNorm(12, -1.0)
    with pytest.raises(ValueError, match=r"key should be \(batch, length, 12\)"):
        decoder()(double(B, M, DIM), double(B, N, 5))
