"""The recurrent encoder against each sentence by itself, and decoders without attention."""

import pytest
import torch
from torch import nn

from regard.models import Bridge, Encoder, Frames, Tokens, build

B, S, T, LENGTHS = 3, 7, 5, torch.tensor([4, 7, 0])
SIZES = {"source_vocabulary": 13, "target_vocabulary": 17, "embedding": 3, "hidden": 5}


def encoder_of(**options) -> Encoder:
    torch.manual_seed(6)
    return Encoder(Tokens(13, 3), 5, **options).double()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("both", [False, True])
def test_the_encoder_is_torch_over_each_sentence_alone(cell, both):
    encoder = encoder_of(cell=cell, layers=2, bidirectional="all" if both else "none")
    theirs = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](3, 5, 2, bidirectional=both).double()
    weights = {}
    for layer, own in enumerate(encoder.recurrent.layers):
        weights |= {k.replace("_l0", f"_l{layer}"): w for k, w in own.state_dict().items()}
    theirs.load_state_dict(weights)
    source = torch.randint(13, (B, S))
    memory = encoder(source, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        assert not memory.states[b, length:].any()
        if not length:
            assert not any(part[b].any() for part in memory.final)
            continue
        states, last = theirs(encoder.embedding(source[b : b + 1, :length])[0])
        torch.testing.assert_close(memory.states[b, :length], states)
        last = torch.stack(last) if cell == "lstm" else last[None]  # (parts, layers · ways, 5)
        ends = last.unflatten(1, (2, -1)).flatten(2).flatten(0, 1)  # h of both layers, then c
        torch.testing.assert_close(torch.stack([part[b] for part in memory.final]), ends)


def test_a_source_is_read_backwards_and_its_states_keep_their_order():
    forwards, backwards = encoder_of(cell="lstm"), encoder_of(cell="lstm", reverse_source=True)
    source = torch.randint(13, (B, S))
    memory = backwards(source, LENGTHS)
    assert not memory.states[2].any()
    assert not any(part[2].any() for part in memory.final)
    for b, length in enumerate(LENGTHS.tolist()[:2]):
        alone = forwards(source[b : b + 1, :length].flip(1))
        torch.testing.assert_close(memory.states[b, :length], alone.states[0].flip(0))
        assert not memory.states[b, length:].any()
        for part, wanted in zip(memory.final, alone.final, strict=True):
            torch.testing.assert_close(part[b], wanted[0])


def test_a_residual_encoder_adds_its_input_above_the_first_layer():
    encoder = encoder_of(layers=3, residual=True)
    source = torch.randint(13, (B, S))
    x, _ = encoder.recurrent.layers[0](encoder.embedding(source))
    x = x + encoder.recurrent.layers[1](x)[0]
    x = x + encoder.recurrent.layers[2](x)[0]
    torch.testing.assert_close(encoder(source).states, x)


def test_dropout_is_of_what_a_layer_reads_not_of_what_runs_past_it():
    encoder = encoder_of(layers=3, residual=True, dropout=0.9).train()
    for run in encoder.recurrent.layers[1:]:  # they say 0, whatever they read
        for weight in run.parameters():
            torch.nn.init.zeros_(weight)
    source = torch.randint(13, (B, S))
    x, _ = encoder.recurrent.layers[0](encoder.embedding(source))
    torch.testing.assert_close(encoder(source).states, x)


def test_layers_that_read_both_ways_are_all_or_the_bottom_one():
    ways = {
        name: encoder_of(layers=3, bidirectional=name).recurrent.bidirectional
        for name in ("none", "bottom", "all")
    }
    assert ways["none"] == [False, False, False]
    assert ways["bottom"] == [True, False, False]
    assert ways["all"] == [True, True, True]


def test_a_deeper_decoder_starts_from_the_top_of_the_encoder():
    encoder = encoder_of(layers=2)
    final = encoder(torch.randint(13, (B, S)))
    start = Bridge(encoder, 5, layers=3)(final)
    assert [part is final.final[i] for part, i in zip(start, (0, 1, 1), strict=True)] == [True] * 3
    (start,) = Bridge(encoder, 5, layers=1)(final)
    assert start is final.final[1]


def test_bad_input_raises_a_helpful_error():
    encoder = encoder_of()
    source = torch.randint(13, (B, S))
    with pytest.raises(ValueError, match=r"integers \(3,\)"):
        encoder(source, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"integers \(3,\)"):
        encoder(source, torch.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="from 0 to 7"):
        encoder(source, torch.tensor([1, 8, 3]))
    with pytest.raises(ValueError, match="1 or more positions"):
        encoder(source[:, :0])
    with pytest.raises(ValueError, match="build the model with frames="):
        encoder(torch.randn(B, S, 3))
    with pytest.raises(ValueError, match=r"float \(batch, length, 3\)"):
        Encoder(Frames(3, 5), 5)(torch.randn(B, S, 4))


# ------------------------------------------------------------------ without attention


def test_the_plain_decoder_uses_only_the_last_state():
    model = build("plain", **SIZES).double()
    source, target = torch.randint(13, (B, S)), torch.randint(17, (B, T))
    memory = model.encode(source)
    last = memory.states[:, -1]
    expected, _ = model.decoder.recurrent.layers[0](model.decoder.embedding(target), last[None])
    torch.testing.assert_close(model.decode(memory, target), expected)
    other = memory._replace(states=torch.zeros_like(memory.states))
    torch.testing.assert_close(model.decode(other, target), expected)


def test_the_peeky_decoder_gets_the_last_state_at_every_input_and_output():
    model = build("peeky", **SIZES).double()
    source, target = torch.randint(13, (B, S)), torch.randint(17, (B, T))
    memory = model.encode(source)
    last = memory.states[:, -1]
    peek = last[:, None].expand(B, T, 5)
    inputs = torch.cat((model.decoder.embedding(target), peek), -1)
    output, _ = model.decoder.recurrent.layers[0](inputs, last[None])
    expected = torch.cat((output, peek), -1)
    torch.testing.assert_close(model.decode(memory, target), expected)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_states_of_a_deep_stack_differ_from_token_to_token(cell):
    torch.manual_seed(0)
    sizes = {"source_vocabulary": 50, "target_vocabulary": 50, "embedding": 64, "hidden": 64}
    model = build("gnmt", **sizes, layers=4, cell=cell)
    source = torch.randint(50, (16, 12))
    states = model.encode(source).states
    assert (states - states.mean((0, 1))).std() > 0.1  # with the initialisation of torch below 0.01
