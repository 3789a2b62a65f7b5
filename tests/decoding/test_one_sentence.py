"""Greedy search of one sentence in a compiled loop gives what single steps give."""

import pytest
import torch

from regard.decoding import Limits, greedy
from regard.decoding.one_sentence import can_loop, greedy_sentence
from regard.models import build

MODELS = {
    "luong": ("luong", {}),
    "luong, LSTM, three residual layers": (
        "luong",
        {"cell": "lstm", "layers": 3, "residual": True},
    ),
    "luong, dot": ("luong", {"score": "dot", "bidirectional": "none"}),
    "luong, scaled dot": ("luong", {"score": "scaled_dot", "bidirectional": "none"}),
    "luong, additive, input feeding": ("luong", {"score": "additive", "feeding": True}),
    "bahdanau": ("bahdanau", {}),
    "bahdanau, LSTM, two layers": ("bahdanau", {"cell": "lstm", "layers": 2}),
    "bahdanau, general": ("bahdanau", {"score": "general"}),
    "gnmt": ("gnmt", {"layers": 4}),
    "gnmt, GRU": ("gnmt", {"layers": 2, "cell": "gru"}),
    "attention": ("attention", {}),
}
SIZES = {"source_vocabulary": 41, "target_vocabulary": 301, "embedding": 16, "hidden": 32}
LIMITS = Limits(1.0, 9)


def make(name, dtype=torch.float64, **options):
    torch.manual_seed(len(name))
    kind, own = MODELS[name]
    return build(kind, None, **{**SIZES, **own, **options}).to(dtype).eval()


def by_steps(model, source, lengths=None, **options):
    return greedy(model, source, lengths, limits=LIMITS, on_step=lambda *_: None, **options)[0]


def by_loop(model, source, lengths=None, forbid=(), return_map=False):
    can_loop(model, source)  # the first sentence of a process goes step by step
    assert can_loop(model, source)
    options = {"limits": LIMITS, "forbid": forbid, "return_map": return_map}
    return greedy_sentence(model, source, lengths, **options)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loop_gives_the_tokens_scores_and_maps_of_single_steps(name, dtype):
    model = make(name, dtype)
    for length in (1, 7, 40):
        source = torch.randint(4, 41, (1, length))
        expected = by_steps(model, source, return_map=True)
        found = by_loop(model, source, return_map=True)
        assert found.tokens == expected.tokens
        assert abs(found.score - expected.score) < (1e-4 if dtype == torch.float32 else 1e-10)
        assert found.maps.keys() == expected.maps.keys()
        for key, map in found.maps.items():
            torch.testing.assert_close(map, expected.maps[key])
        assert greedy(model, source, limits=LIMITS)[0]._replace(maps=None) == by_loop(model, source)


def test_padding_forbidden_tokens_and_the_end_are_respected():
    model = make("luong")
    source, length = torch.randint(4, 41, (1, 9)), torch.tensor([5])
    first = by_loop(model, source, length)
    assert first == by_steps(model, source, length)
    assert first.tokens != by_loop(model, source).tokens
    banned = first.tokens[0]
    other = by_loop(model, source, length, forbid=[banned])
    assert other == by_steps(model, source, length, forbid=[banned])
    assert banned not in other.tokens
    with torch.no_grad():
        model.output.bias[2] = 50.0
    assert by_loop(model, source).tokens == (2,)


def test_what_the_loop_does_not_compute_goes_step_by_step():
    source = torch.randint(4, 41, (1, 9))
    can_loop(make("luong"), source)
    assert can_loop(make("luong"), source)
    assert not can_loop(make("luong"), source.expand(2, -1))
    assert not can_loop(make("luong", hidden=24), source)
    assert not can_loop(make("luong", torch.bfloat16), source)
    assert not can_loop(make("luong", score="cosine", bidirectional="none"), source)
    assert not can_loop(make("luong", attention="sparsemax"), source)
    assert not can_loop(
        build("transformer", "tiny", source_vocabulary=41, target_vocabulary=41), source
    )
    seen = []
    hooked = make("luong")
    hooked.decoder.join.register_forward_hook(lambda *_: seen.append(1))
    found = greedy(hooked, source, limits=LIMITS)[0]
    assert len(seen) == len(found.tokens)
    training = make("luong").train()
    greedy(training, source, limits=LIMITS)
    assert training.training
