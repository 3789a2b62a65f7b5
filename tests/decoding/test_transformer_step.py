"""Compiled steps of a Transformer's decoder give what the model's own steps give."""

from itertools import chain

import pytest
import torch
from torch import nn

from regard.attention.observer import record
from regard.decoding import Limits, beam, greedy, sample
from regard.decoding.transformer_step import CompiledDecoder, can_compile
from regard.models import Transformer, build

SIZES = {
    "source_vocabulary": 41, "target_vocabulary": 67, "dim": 48, "heads": 3, "hidden": 29,
    "layers": 2,
}  # fmt: skip
MODELS = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "learned positions, heads of two vectors": {"position": "learned", "dim": 64, "heads": 2},
    "no positions, GELU": {"position": "none", "activation": nn.GELU(), "norm": "pre"},
    "one layer of one head": {"heads": 1, "layers": 1},
}
EVERY = pytest.mark.parametrize("name", MODELS)
LENGTHS = [7, 3, 1, 5, 7]


def make(name="post-norm", dtype=torch.float64, seed=5, **options):
    torch.manual_seed(seed)
    model = Transformer(**{**SIZES, **MODELS[name], **options}).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def sources(lengths=LENGTHS):
    return torch.randint(4, 41, (len(lengths), max(lengths))), torch.tensor(lengths)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.inference_mode()
def test_steps_give_the_features_of_the_teacher_forced_pass(name, dtype):
    model = make(name, dtype)
    memory, target = model.encode(*sources()), torch.randint(4, 67, (5, 71))
    expected = model.decode(memory, target)
    compiled = CompiledDecoder(model)
    state = compiled.start(memory)
    for step in range(target.shape[1]):  # more than there is room for at first
        features, state = compiled.step(target[:, step], state)
        torch.testing.assert_close(features, expected[:, step])


@EVERY
@torch.inference_mode()
def test_reordered_beams_keep_their_own_past(name):
    model = make(name)
    memory = model.encode(*sources())
    compiled = CompiledDecoder(model)
    state, expected_state = compiled.start(memory), model.start(memory)
    order = torch.arange(5).repeat_interleave(3)  # three beams of each sentence
    for step in range(40):
        tokens = torch.randint(4, 67, (len(order),)) if step else torch.full((5,), 1)
        features, state = compiled.step(tokens, state)
        expected, expected_state = model.step(tokens, expected_state)
        torch.testing.assert_close(features, expected)
        if step:
            groups = order.numel() // 3 - (step % 13 == 0)  # now and then a sentence is gone
            kept = torch.randperm(order.numel() // 3)[:groups].sort()[0]
            order = (3 * kept[:, None] + torch.randint(0, 3, (groups, 3))).flatten()
        state, expected_state = state.reorder(order), expected_state.reorder(order)


@EVERY
@pytest.mark.parametrize("search", [greedy, beam, sample])
def test_searches_find_the_same_texts_scores_and_maps(name, search, monkeypatch):
    model, (source, lengths) = make(name), sources([7, 3, 0, 1, 5, 7])
    options = {"limits": Limits(1.0, 9), "return_map": True}
    if search is beam:
        options |= {"size": 4, "n_best": 2}
    assert can_compile(model)
    found = search(model, source, lengths, **options)
    without = search(model, source, lengths, **{**options, "return_map": False})
    monkeypatch.setattr("regard.decoding.search.can_compile", lambda model: False)
    expected = search(model, source, lengths, **options)
    if search is beam:
        found, without, expected = (list(chain(*each)) for each in (found, without, expected))
    for one, plain, other in zip(found, without, expected, strict=True):
        assert one.tokens == plain.tokens == other.tokens
        assert one.score == plain.score == pytest.approx(other.score, abs=1e-9)
        assert one.maps.keys() == other.maps.keys()
        for key, map in one.maps.items():
            torch.testing.assert_close(map, other.maps[key])


def test_padding_of_the_source_is_never_read():
    model, (source, lengths) = make(), sources()
    expected = beam(model, source, lengths, size=3)
    encode = model.encode

    def spoiled(*arguments):
        memory = encode(*arguments)
        hidden = torch.arange(memory.states.shape[1]) >= memory.lengths[:, None]
        memory.states[hidden] = torch.nan
        return memory

    model.encode = spoiled
    assert beam(model, source, lengths, size=3) == expected


def test_what_the_compiled_steps_do_not_compute_goes_through_the_model():
    assert can_compile(make())
    others = {
        "heads that fill no vector": {"heads": 4},
        "shared keys": {"kv_heads": 1},
        "score": {"score": "dot"},
        "rotary": {"position": "rotary"},
        "alibi": {"position": "alibi"},
    }
    for reason, options in others.items():
        assert not can_compile(make(**options)), reason
    assert not can_compile(make(dtype=torch.bfloat16))
    assert not can_compile(make().to("meta"))
    assert not can_compile(build("luong", "tiny", source_vocabulary=41, target_vocabulary=67))
    normed = make()
    nn.utils.parametrizations.weight_norm(normed.decoder.layers[0].attention.query_projection)
    assert not can_compile(normed)
    with torch.autocast("cpu"):
        assert not can_compile(make())
    with record():
        assert not can_compile(make())


def test_hooks_of_the_decoder_are_called_at_every_step():
    model, (source, lengths), seen = make(), sources(), []
    model.decoder.layers[1].attention.register_forward_hook(lambda *_: None)
    model.decoder.layers[1].feed_forward.register_forward_hook(lambda *_: seen.append(1))
    found = greedy(model, source, lengths, limits=Limits(0.0, 6))
    assert len(seen) == max(len(each.tokens) for each in found)


def test_changed_weights_are_used_by_the_next_search():
    model, (source, lengths) = make(), sources()
    before = greedy(model, source, lengths)
    with torch.no_grad():
        model.decoder.layers[0].attention.value_projection.weight.mul_(-3.0)
    assert greedy(model, source, lengths) != before
