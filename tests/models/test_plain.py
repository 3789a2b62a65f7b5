"""Decoders without attention, written out."""

import torch

from regard.models import build

B, S, T = 2, 7, 5
SIZES = {"source_vocabulary": 13, "target_vocabulary": 17, "embedding": 3, "hidden": 5}


def test_the_plain_decoder_knows_the_last_state_alone():
    model = build("plain", **SIZES).double()
    source, target = torch.randint(13, (B, S)), torch.randint(17, (B, T))
    memory = model.encode(source)
    last = memory.states[:, -1]
    expected, _ = model.decoder.recurrent.layers[0](model.decoder.embedding(target), last[None])
    torch.testing.assert_close(model.decode(memory, target), expected)
    other = memory._replace(states=torch.zeros_like(memory.states))
    torch.testing.assert_close(model.decode(other, target), expected)


def test_the_peeky_decoder_sees_the_last_state_at_every_input_and_output():
    model = build("peeky", **SIZES).double()
    source, target = torch.randint(13, (B, S)), torch.randint(17, (B, T))
    memory = model.encode(source)
    last = memory.states[:, -1]
    peek = last[:, None].expand(B, T, 5)
    inputs = torch.cat((model.decoder.embedding(target), peek), -1)
    output, _ = model.decoder.recurrent.layers[0](inputs, last[None])
    expected = torch.cat((output, peek), -1)
    torch.testing.assert_close(model.decode(memory, target), expected)
