"""The deep stack: which layer adds what, and which layers get the context."""

import torch

from regard.models import build
from regard.models.recurrent import Recurrent

B, S, T = 2, 7, 5


def test_the_stack_is_the_one_of_the_paper():
    torch.manual_seed(5)
    sizes = {"embedding": 3, "hidden": 5, "layers": 4}
    model = build("gnmt", source_vocabulary=13, target_vocabulary=17, **sizes).double()
    source, target = torch.randint(13, (B, S)), torch.randint(17, (B, T))
    memory = model.encode(source)
    first, second, third, fourth = model.encoder.recurrent.layers
    x, _ = first(model.encoder.embedding(source))
    assert first.bidirectional
    assert x.shape == (B, S, 10)
    assert not second.bidirectional
    x, _ = second(x)
    x = x + third(x)[0]
    x = x + fourth(x)[0]
    torch.testing.assert_close(memory.states, x)

    decoder = model.decoder
    starts = decoder.bridge(memory)  # h of four layers, then c of four layers
    starts = [tuple(part.unsqueeze(0) for part in starts[layer::4]) for layer in range(4)]
    x, _ = decoder.bottom.layers[0](decoder.embedding(target), starts[0])
    scores = decoder.attention.score(x, memory.states)
    context = torch.softmax(scores, -1) @ memory.states
    second, third, fourth = decoder.upper.layers
    x, _ = second(torch.cat((x, context), -1), starts[1])
    x = x + third(torch.cat((x, context), -1), starts[2])[0]
    x = x + fourth(torch.cat((x, context), -1), starts[3])[0]
    torch.testing.assert_close(model.decode(memory, target), x)


def test_the_first_state_is_projected_where_the_encoder_read_both_ways():
    sizes = {"embedding": 3, "hidden": 5, "layers": 3}
    model = build("gnmt", source_vocabulary=13, target_vocabulary=17, **sizes).double()
    memory = model.encode(torch.randint(13, (B, S)))
    starts = model.decoder.bridge(memory)
    hidden, cell = (model.decoder.bridge.projections[place] for place in (0, 3))
    torch.testing.assert_close(starts[0], torch.tanh(hidden(memory.final[0])))
    torch.testing.assert_close(starts[3], torch.tanh(cell(memory.final[3])))
    assert [starts[i] is memory.final[i] for i in (1, 2, 4, 5)] == [True] * 4


def test_dropout_is_of_what_a_layer_reads_not_of_what_runs_past_it():
    stack = Recurrent(3, 5, layers=3, residual=True, dropout=0.9).train()
    for layer in list(stack.layers)[1:]:  # they say 0, whatever they read
        for weight in layer.parameters():
            torch.nn.init.zeros_(weight)
    x, hidden = torch.randn(2, 7, 3), stack.zero(2, torch.zeros(()))
    below, _ = stack.layers[0](x)
    torch.testing.assert_close(stack(x, hidden)[0], below)
    torch.testing.assert_close(stack.step(x[:, 0], hidden)[0], below[:, 0])
