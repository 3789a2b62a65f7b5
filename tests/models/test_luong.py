"""Luong et al. 2015, written out with the model's own parameters."""

import pytest
import torch
from torch import Tensor

import regard.models.aligner
from regard.attention.observer import record
from regard.core.normalize import NORMALIZERS
from regard.layers import HardAttention, LocalAttention, PredictedCenter
from regard.models import Memory, build, find_aligner
from tests.recorded import recorded

B, S, T, SOURCE, TARGET = 2, 7, 5, 13, 17
LENGTHS = torch.tensor([7, 4])


def model_of(**options) -> torch.nn.Module:
    torch.manual_seed(4)
    sizes = {"source_vocabulary": SOURCE, "target_vocabulary": TARGET, "embedding": 3, "hidden": 5}
    return build("luong", **(sizes | options)).double()


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randint(SOURCE, (B, S)), torch.randint(TARGET, (B, T))


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("join", ["tanh", "concatenate"])
def test_the_model_is_the_one_of_the_paper(feeding, join):
    model = model_of(feeding=feeding, join=join, cell="lstm")
    decoder = model.decoder
    source, target = inputs()
    memory = model.encode(source, LENGTHS)
    features, maps = recorded(model, lambda: model.decode(memory, target))
    cell = decoder.recurrent.layers[0]
    W = decoder.attention.score.weight * decoder.attention.score.scale
    for b in range(B):
        states = memory.states[b, : LENGTHS[b]]
        h, c = memory.final[0][b], memory.final[1][b]
        torch.testing.assert_close(h, states[-1])  # the first state is the encoder's last
        attentional = torch.zeros(decoder.width, dtype=torch.float64)
        for t in range(T):
            x = decoder.embedding.weight[target[b, t]] * decoder.embedding.scale
            x = torch.cat((x, attentional)) if feeding else x  # section 3.3
            gates = cell.weight_ih_l0 @ x + cell.bias_ih_l0 + cell.weight_hh_l0 @ h
            i, f, g, o = (gates + cell.bias_hh_l0).chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            scores = torch.stack([h @ W @ state for state in states])  # eq. 8
            a = torch.exp(scores) / torch.exp(scores).sum()  # eq. 7
            context = (a[:, None] * states).sum(0)
            attentional = torch.cat((context, h))
            if join == "tanh":
                attentional = torch.tanh(decoder.join.projection.weight @ attentional)  # eq. 5
            torch.testing.assert_close(features[b, t], attentional)
            torch.testing.assert_close(maps["decoder.attention"][b, 0, t, : len(states)], a)
    logits = model.output(features)  # eq. 6
    expected = features @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(logits, expected)


def test_without_feeding_the_whole_target_is_one_call(monkeypatch):
    calls = []

    def counted(query: Tensor, *rest, **options):
        calls.append(tuple(query.shape))
        return regard.attend(query, *rest, **options)

    monkeypatch.setattr(regard.models.aligner, "attend", counted)
    source, target = inputs()
    model_of()(source, LENGTHS, target)
    assert calls == [(B, 1, T, 5)]
    calls.clear()
    model_of(feeding=True)(source, LENGTHS, target)
    assert calls == [(B, 1, 1, 5)] * T


def test_local_and_hard_attention_are_those_of_the_layers():
    query = torch.randn(B, T, 3, dtype=torch.float64)
    memory = Memory(torch.randn(B, S, 5, dtype=torch.float64), LENGTHS, None)
    layers = {
        "local": LocalAttention(3, 2, key_dim=5),
        "predictive": LocalAttention(3, 2, key_dim=5, center=PredictedCenter(3)),
        "hard": HardAttention(3, key_dim=5),
        "gumbel": HardAttention(3, key_dim=5),
    }
    for name, layer in layers.items():
        window = 2 if name in ("local", "predictive") else None
        aligner = find_aligner(name, score="general", window=window)(3, 5)
        aligner.load_state_dict(layer.state_dict())
        layer, aligner = layer.double().eval(), aligner.double().eval()
        expected = layer(query, memory.states, mask=memory.mask(), return_map=True)
        with record() as calls:
            context = aligner(query, memory)
        map = calls[0].map
        torch.testing.assert_close(context, expected.output)
        shape = expected.map.shape  # aligners may have a dimension of one head
        torch.testing.assert_close(map.dense().view(shape), expected.map.dense())
        torch.testing.assert_close(map.scores.dense().view(shape), expected.map.scores.dense())


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "sigmoid", "sink"])
def test_attention_by_name_is_the_normalizer_of_that_name(name):
    query = torch.randn(B, T, 3, dtype=torch.float64)
    states = 3 * torch.randn(B, S, 5, dtype=torch.float64)
    aligner = find_aligner(name, score="general")(3, 5).double()
    context, maps = recorded(aligner, lambda: aligner(query, Memory(states, LENGTHS, None)))
    for b, count in enumerate(LENGTHS.tolist()):
        score = aligner.score
        scores = score.scale * query[b] @ score.weight @ states[b, :count].T
        weights = NORMALIZERS[name](scores)
        assert bool((weights == 0).any()) == (name in ("sparsemax", "entmax15"))
        torch.testing.assert_close(maps[""][b, 0, :, :count], weights)
        torch.testing.assert_close(context[b], weights @ states[b, :count])


def test_a_gumbel_choice_is_drawn_in_training_only():
    memory = Memory(torch.randn(B, 64, 5), torch.tensor([64, 64]), None)
    aligner = find_aligner("gumbel", score="general")(3, 5)
    query = torch.randn(B, T, 3)
    assert not torch.equal(aligner(query, memory), aligner(query, memory))
    aligner.eval()
    assert torch.equal(aligner(query, memory), aligner(query, memory))
