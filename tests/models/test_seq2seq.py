"""Every model behind one interface: whole targets and single steps agree, padding is never seen."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.models import KINDS, AttentionSeq2Seq, Memory, StackState, State, build
from tests.recorded import recorded, step_weights

B, S, T, SOURCE, TARGET = 3, 7, 5, 13, 17
LENGTHS = torch.tensor([7, 4, 2])
RECURRENT = {"source_vocabulary": SOURCE, "target_vocabulary": TARGET, "embedding": 5, "hidden": 6}
ATTENTIVE = {"source_vocabulary": SOURCE, "target_vocabulary": TARGET, "dim": 12, "heads": 3}
ATTENTIVE |= {"hidden": 11, "layers": 2, "dropout": 0.2}

MODELS = {
    "bahdanau": ("bahdanau", {}),
    "bahdanau, deep lstm": (
        "bahdanau",
        {"layers": 3, "cell": "lstm", "residual": True, "bidirectional": "bottom", "width": 7},
    ),
    "bahdanau, general, hard": ("bahdanau", {"score": "general", "attention": "hard"}),
    "bahdanau, local": ("bahdanau", {"attention": "local", "window": 1}),
    "luong": ("luong", {"bidirectional": "all"}),
    "luong, fed": ("luong", {"feeding": True, "layers": 2, "dropout": 0.2}),
    "luong, fed, concatenate": ("luong", {"feeding": True, "join": "concatenate", "cell": "lstm"}),
    "luong, local": ("luong", {"attention": "local", "window": 2}),
    "luong, predictive": ("luong", {"attention": "predictive", "window": 2}),
    "luong, predictive, fed": (
        "luong",
        {"attention": "predictive", "window": 2, "feeding": True, "score": "additive"},
    ),
    "luong, gumbel": ("luong", {"attention": "gumbel"}),
    "luong, sparsemax": ("luong", {"attention": "sparsemax"}),
    "bahdanau, entmax15": ("bahdanau", {"attention": "entmax15"}),
    "gnmt": ("gnmt", {"layers": 4, "dropout": 0.2}),
    "gnmt, gru": ("gnmt", {"layers": 2, "cell": "gru", "score": "general"}),
    "plain": ("plain", {"layers": 2, "cell": "lstm"}),
    "peeky": ("peeky", {"layers": 2, "bidirectional": "all", "residual": True}),
    "attention": ("attention", {}),
    "attention, reversed": ("attention", {"reverse_source": True}),
    "transformer": ("transformer", {}),
    "transformer, pre, rotary": ("transformer", {"norm": "pre", "position": "rotary"}),
    "transformer, alibi": ("transformer", {"position": "alibi", "kv_heads": 1}),
    "transformer, learned": ("transformer", {"position": "learned", "max_length": S}),
    "transformer, efficient": (
        "transformer",
        {"encoder_attention": "efficient", "kv_heads": 1, "attention_dropout": 0.1},
    ),
    "transformer, efficient, pre": (
        "transformer",
        {"encoder_attention": "efficient", "norm": "pre", "position": "none"},
    ),
    "transformer, none": ("transformer", {"position": "none", "decoder_layers": 1}),
}
SCORES = ["dot", "scaled_dot", "cosine", "general", "biased_general", "activated_general"]
SCORES += ["additive", "concat", "location"]


def model_of(kind: str, **options) -> nn.Module:
    """A model in float64, evaluating, with parameters that are all drawn."""
    torch.manual_seed(3)
    first = ATTENTIVE if kind == "transformer" else RECURRENT
    model = build(kind, **(first | options)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return model


def named(name: str) -> nn.Module:
    kind, options = MODELS[name]
    return model_of(kind, **options)


def source(seed: int = 0) -> Tensor:
    return torch.randint(SOURCE, (B, S), generator=torch.Generator().manual_seed(seed))


def target(seed: int = 1) -> Tensor:
    return torch.randint(TARGET, (B, T), generator=torch.Generator().manual_seed(seed))


def stepped(model: nn.Module, memory: Memory, ids: Tensor) -> Tensor:
    state, features = model.start(memory), []
    for tokens in ids.unbind(1):
        feature, state = model.step(tokens, state)
        features.append(feature)
    return torch.stack(features, 1)


# ------------------------------------------------------------------ steps


@pytest.mark.parametrize("name", MODELS)
def test_steps_give_what_the_whole_target_gives(name):
    model = named(name)
    memory = model.encode(source(), LENGTHS)
    features = model.decode(memory, target())
    torch.testing.assert_close(stepped(model, memory, target()), features)
    assert features.shape == (B, T, model.output.in_features)
    torch.testing.assert_close(model(source(), LENGTHS, target()), features)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_any_score_by_name_gives_the_same_in_steps(kind, score):
    model = model_of(kind, score=score, bidirectional="none")
    memory = model.encode(source(), LENGTHS)
    features = model.decode(memory, target())
    torch.testing.assert_close(stepped(model, memory, target()), features)


def test_a_score_may_be_a_function_of_the_widths():
    made = []

    def score(query_dim: int, key_dim: int) -> regard.Additive:
        made.append(regard.Additive(query_dim, key_dim, 11))
        return made[-1]

    model = model_of("luong", score=score, bidirectional="all")
    assert made[0].key_weight.shape == (11, 12)
    assert any(parameter is made[0].vector for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_steps_agree_under_reordering(name):
    """Two beams for each sentence, of which some survive, and sentences that end."""
    model = named(name)
    memory = model.encode(source(), LENGTHS)
    state = model.start(memory).reorder(torch.arange(B).repeat_interleave(2))
    owner = torch.arange(B).repeat_interleave(2)
    ids = torch.zeros(2 * B, 0, dtype=torch.long)
    generator = torch.Generator().manual_seed(5)
    orders = [[1, 1, 2, 3, 5, 4], [0, 1, 3, 2, 4, 4], [5, 0, 0, 3, 3, 1], [3, 2, 5]]
    for order in orders:
        tokens = torch.randint(TARGET, (len(ids),), generator=generator)
        (features, state), weights = step_weights(model, lambda: model.step(tokens, state))  # noqa: B023
        ids = torch.cat((ids, tokens[:, None]), 1)
        alone = model.encode(source()[owner], LENGTHS[owner])
        expected, maps = recorded(model, lambda: model.decode(alone, ids))  # noqa: B023
        torch.testing.assert_close(features, expected[:, -1])
        assert weights.keys() == maps.keys()
        for key, own in weights.items():
            torch.testing.assert_close(own, maps[key][..., -1, : own.shape[-1]])
        index = torch.tensor(order)
        state, ids, owner = state.reorder(index), ids[index], owner[index]


@pytest.mark.parametrize("name", MODELS)
def test_a_state_may_be_stepped_twice(name):
    model = named(name)
    state = model.start(model.encode(source(), LENGTHS))
    _, state = model.step(target()[:, 0], state)
    first, _ = model.step(target()[:, 1], state)
    model.step(target()[:, 2], state)
    again, _ = model.step(target()[:, 1], state)
    assert torch.equal(first, again)
    assert isinstance(state, State | StackState)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_steps_are_those_of_the_whole_target(name):
    model = named(name)
    found = []
    for run in (model.decode, lambda memory, ids: stepped(model, memory, ids)):
        model.zero_grad()
        run(model.encode(source(), LENGTHS), target()).square().sum().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient, msg=key)


# ------------------------------------------------------------------ padding


@pytest.mark.parametrize("name", MODELS)
def test_padding_of_the_source_changes_nothing(name):
    model = named(name)
    features = model(source(), LENGTHS, target())
    real = torch.arange(S) < LENGTHS[:, None]
    other = torch.where(real, source(), source(9))
    assert torch.equal(model(other, LENGTHS, target()), features)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = model(source()[b : b + 1, :length], None, target()[b : b + 1])
        torch.testing.assert_close(alone[0], features[b])
    assert not model.encode(source(), LENGTHS).states[~real].any()


@pytest.mark.parametrize("name", MODELS)
def test_no_step_sees_a_later_token(name):
    model = named(name)
    memory = model.encode(source(), LENGTHS)
    features = model.decode(memory, target())
    changed = target().clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % TARGET
    torch.testing.assert_close(model.decode(memory, changed)[:, :3], features[:, :3])
    assert not torch.allclose(model.decode(memory, changed)[:, 3], features[:, 3])


@pytest.mark.parametrize("kind", ["bahdanau", "luong", "gnmt", "peeky", "transformer"])
def test_nan_in_padded_frames_reaches_no_output_and_no_gradient(kind):
    options = {"layers": 2} if kind == "gnmt" else {}
    model = model_of(kind, source_vocabulary=None, frames=3, **options)
    frames = torch.randn(B, S, 3, dtype=torch.float64)
    frames[torch.arange(S) >= LENGTHS[:, None]] = float("nan")
    clean = frames.nan_to_num().requires_grad_()
    frames.requires_grad_()
    features = model(frames, LENGTHS, target())
    torch.testing.assert_close(features, model(clean, LENGTHS, target()))
    features.square().sum().backward()
    assert torch.isfinite(frames.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(stepped(model, model.encode(frames, LENGTHS), target()), features)


@pytest.mark.parametrize("name", ["bahdanau", "luong", "gnmt", "plain", "transformer"])
def test_an_empty_sentence_gives_finite_numbers(name):
    model = named(name)
    features = model(source(), torch.tensor([0, 7, 0]), target())
    features.sum().backward()
    assert torch.isfinite(features).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


# ------------------------------------------------------------------ maps


@pytest.mark.parametrize("name", MODELS)
def test_maps_of_the_whole_target_and_of_steps_are_alike(name):
    kind, options = MODELS[name]
    model = named(name)
    memory = model.encode(source(), LENGTHS)
    features, maps = recorded(model, lambda: model.decode(memory, target()))
    torch.testing.assert_close(features, model.decode(memory, target()))
    state = model.start(memory)
    cross = [key for key in maps if not key.endswith(".attention") or kind != "transformer"]
    for t, tokens in enumerate(target().unbind(1)):
        (feature, state), weights = step_weights(model, lambda: model.step(tokens, state))  # noqa: B023
        torch.testing.assert_close(feature, features[:, t])
        assert weights.keys() == maps.keys()
        for key in cross:
            torch.testing.assert_close(weights[key], maps[key][..., t, :])
    for key in cross:
        map = maps[key]
        assert map.shape == (B, 3 if kind == "transformer" else 1, T, S)
        assert not map[~(torch.arange(S) < LENGTHS[:, None])[:, None, None].expand_as(map)].any()
        if options.get("attention") not in ("local", "predictive"):
            torch.testing.assert_close(map.sum(-1), torch.ones_like(map[..., 0]))
    attentive = kind not in ("plain", "peeky")
    assert bool(cross) == attentive
    modules = dict(model.named_modules())
    assert all(key in modules for key in maps)


def test_a_transformer_also_gives_the_maps_of_its_encoder():
    model = named("transformer")
    features, maps = recorded(model, lambda: model(source(), LENGTHS, target()))
    torch.testing.assert_close(features, model(source(), LENGTHS, target()))
    assert maps["encoder.layers.1.attention"].shape == (B, 3, S, S)
    assert maps["decoder.layers.0.attention"].shape == (B, 3, T, T)
    assert maps["decoder.layers.1.memory_attention"].shape == (B, 3, T, S)
    assert len(maps) == 6


# ------------------------------------------------------------------ as modules


@pytest.mark.parametrize("name", MODELS)
def test_weights_go_through_a_file_and_models_are_copied(name):
    model = named(name)
    features = model(source(), LENGTHS, target())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    kind, options = MODELS[name]
    other = build(kind, **((ATTENTIVE if kind == "transformer" else RECURRENT) | options))
    other = other.double().eval()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(source(), LENGTHS, target()), features)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(other(source(), LENGTHS, target()), features)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_trained(name):
    model = named(name)
    model.output(model(source(), LENGTHS, target())).logsumexp(-1).sum().backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    if "hard" in name:  # one state is chosen, whose softmax gradient may vanish
        idle = [n for n in idle if "score" not in n]
    assert idle == []


@pytest.mark.parametrize("kind", ["luong", "bahdanau", "transformer"])
def test_a_tied_output_is_the_embedding(kind):
    options = {"tie": "output"} if kind == "transformer" else {"tie": True, "embedding": 6}
    model = model_of(kind, **options)
    tokens = model.target if kind == "transformer" else model.decoder.embedding
    assert model.output.weight is tokens.weight
    other = copy.deepcopy(model)
    tokens = other.target if kind == "transformer" else other.decoder.embedding
    assert other.output.weight is tokens.weight


@pytest.mark.parametrize("name", MODELS)
def test_dropout_falls_in_train_mode_only(name):
    kind, options = MODELS[name]
    model = model_of(kind, **(options | {"dropout": 0.5}))
    a, b = (model(source(), LENGTHS, target()) for _ in range(2))
    assert torch.equal(a, b)
    model.train()
    a, b = (model(source(), LENGTHS, target()) for _ in range(2))
    assert not torch.equal(a, b)


def test_the_textbook_model_is_the_one_of_the_textbook():
    model = AttentionSeq2Seq(SOURCE, TARGET, embedding=3, hidden=5).double()
    memory = model.encode(source())
    hs = model.encoder.recurrent.layers[0](model.encoder.embedding(source()))[0]
    torch.testing.assert_close(memory.states, hs)
    last = tuple(part.unsqueeze(0) for part in memory.final)
    h = model.decoder.recurrent.layers[0](model.decoder.embedding(target()), last)[0]
    weights = torch.softmax(torch.einsum("btd,bsd->bts", h, hs), -1)
    context = torch.einsum("bts,bsd->btd", weights, hs)
    features, maps = recorded(model, lambda: model.decode(memory, target()))
    torch.testing.assert_close(features, torch.cat((context, h), -1))
    torch.testing.assert_close(maps["decoder.attention"][:, 0], weights)


def test_every_kind_is_tested_here():
    assert {kind for kind, _ in MODELS.values()} == set(KINDS) - {"language"}
