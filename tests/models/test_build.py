"""Models from flat configuration: presets, summaries, and sentences about mistakes."""

import pytest
import torch
from torch import nn

from regard.attention.observer import observe
from regard.models import KINDS, PRESETS, build, parameters, summary
from regard.models.build import switch_kind
from tests.flops import Flops

VOCABULARY = {"source_vocabulary": 13, "target_vocabulary": 17}


def of(kind: str, preset: str | None = None, **options) -> nn.Module:
    sizes = {"vocabulary": 13} if kind == "language" else VOCABULARY
    return build(kind, preset, **(sizes | options))


# ------------------------------------------------------------------ presets


def test_every_kind_has_three_presets():
    assert set(PRESETS) == set(KINDS)
    assert all(set(presets) == {"tiny", "small", "base"} for presets in PRESETS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_presets_grow_from_tiny_to_base(kind):
    with torch.device("meta"):
        sizes = [parameters(of(kind, preset)) for preset in ("tiny", "small", "base")]
    assert 2 * sizes[0] < sizes[1] < sizes[2] / 2


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's own advice to its users
def test_the_presets_of_the_transformer_are_the_known_ones():
    tiny, base = PRESETS["transformer"]["tiny"], PRESETS["transformer"]["base"]
    assert tiny == {"layers": 4, "dim": 128, "heads": 4, "hidden": 256, "dropout": 0.3}
    sizes = {"layers": 6, "dim": 512, "heads": 8, "hidden": 2048, "dropout": 0.1}
    assert base == {**sizes, "norm": "pre"}
    with torch.device("meta"):
        model = of("transformer", "base")
    theirs = nn.Transformer(512, 8, 6, 6, 2048, device="meta")
    inside = parameters(model.encoder) + parameters(model.decoder)
    assert inside == parameters(theirs)  # with a norm at the end of either stack


def test_what_is_said_goes_over_the_preset_and_leaves_it_as_it_was():
    model = of("luong", "tiny", hidden=7, cell="lstm")
    assert model.decoder.recurrent.hidden == 7
    assert model.decoder.embedding.dim == PRESETS["luong"]["tiny"]["embedding"]
    assert isinstance(model.encoder.recurrent.layers[0], nn.LSTM)
    assert PRESETS["luong"]["tiny"]["hidden"] == 128


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preset", ["tiny", "small", "base"])
def test_attention_of_a_training_step_runs_off_the_reference_path(kind, preset):
    """At least 95 % of its FLOPs; larger batches than this one only leave more."""
    flops = Flops()
    model = of(kind, preset).train()
    # Bahdanau's decoder attends once for each step of a batch, the others for all steps at once
    batch, S, T = (64, 23, 3) if kind == "bahdanau" else (8, 23, 11)
    target = torch.randint(13, (batch, T))
    with torch.set_grad_enabled(preset == "tiny"), observe(flops):
        if kind == "language":
            features = model(target)
        else:
            lengths = torch.randint(S // 2, S + 1, (batch,))
            features = model(torch.randint(13, (batch, S)), lengths, target)
        if preset == "tiny":
            model.output(features).logsumexp(-1).sum().backward()
    total = sum(flops.by_path.values())
    assert flops.by_path.get("reference", 0) <= 0.05 * total
    assert bool(total) == (kind not in ("plain", "peeky"))


# ------------------------------------------------------------------ summaries


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_tells_the_parts_and_the_total(kind):
    model = of(kind, "tiny")
    text = summary(model)
    lines = text.splitlines()
    assert lines[-1].split() == ["total", type(model).__name__, f"{parameters(model):,}"]
    assert sum(p.numel() for p in model.parameters()) == parameters(model)
    assert len({len(line) for line in lines}) == 1
    counts = {line.split()[0]: line.split()[-1] for line in lines[2:-2]}
    top = [name for name, child in model.named_children() if any(True for _ in child.parameters())]
    total = sum(int(counts[name].replace(",", "")) for name in top)
    assert total == parameters(model)


def test_a_summary_counts_what_is_shared_once():
    model = build("transformer", "tiny", source_vocabulary=17, target_vocabulary=17, tie="all")
    lines = summary(model).splitlines()
    (line,) = (line for line in lines if line.startswith("target "))
    assert line.split() == ["target", "Tokens", "(shared)", "0"]
    (line,) = (line for line in lines if line.startswith("output "))
    assert line.split() == ["output", "Linear", "(shared)", "17"]


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (("transfomer",), {}, "did you mean 'transformer'"),
        (("luong", "huge"), VOCABULARY, "unknown preset of luong 'huge'; known: tiny, small, base"),
        (("luong",), VOCABULARY | {"hiden": 3}, "luong has no option 'hiden'; did you mean 'hidd"),
        (("luong",), {"source_vocabulary": 13}, "needs target_vocabulary="),
        (("language",), {}, "needs vocabulary="),
        (("luong",), {"target_vocabulary": 17}, "source_vocabulary or frames"),
        (("luong",), VOCABULARY | {"score": "dots"}, "did you mean 'dot'"),
        (("luong",), VOCABULARY | {"score": "dot", "bidirectional": "all"}, "score='general'"),
        (("luong",), VOCABULARY | {"attention": "locl"}, "did you mean 'local'"),
        (("luong",), VOCABULARY | {"attention": "local"}, "needs window="),
        (("luong",), VOCABULARY | {"window": 2}, "is for attention='local'"),
        (("luong",), VOCABULARY | {"join": "concat"}, "did you mean 'concatenate'"),
        (("luong",), VOCABULARY | {"cell": "rnn"}, "unknown cell 'rnn'"),
        (("luong",), VOCABULARY | {"bidirectional": "both"}, "unknown bidirectional 'both'"),
        (("luong",), VOCABULARY | {"hidden": 0}, "hidden must be 1 or more, got 0"),
        (("luong",), VOCABULARY | {"dropout": 1.0}, "probability"),
        (("luong",), VOCABULARY | {"tie": True, "embedding": 3}, "leave the embeddings untied"),
        (("bahdanau",), VOCABULARY | {"layers": 0}, "layers must be 1 or more"),
        (("gnmt",), VOCABULARY | {"layers": 1}, "GNMT needs at least 2 layers, got 1"),
        (("plain",), VOCABULARY | {"score": "dot"}, "plain has no option 'score'"),
        (("luong",), {"source_vocabulary": 13, "target_vocabulary": 0}, "vocabulary must be 1"),
    ],
)
def test_bad_configuration_raises_a_helpful_error(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(*arguments, **options)


@pytest.mark.parametrize("kind", ["luong", "transformer", "attention"])
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("hidden", "abc", "a whole number"),
        ("hidden", 1.5, "a whole number"),
        ("hidden", True, "a whole number"),
        ("dropout", "x", "a number"),
    ],
)
def test_an_option_of_the_wrong_type_is_named(kind, name, value, expected):
    sizes = {"source_vocabulary": 7, "target_vocabulary": 7, name: value}
    with pytest.raises(ValueError, match=f"{name} of {kind} should be {expected}, got {value!r}"):
        build(kind, **sizes)


# ------------------------------------------------------------------ another kind


@pytest.mark.parametrize("was", [kind for kind in KINDS if kind != "language"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "language"])
def test_a_table_can_switch_to_every_kind(was, kind):
    table = {"kind": was}
    if was == "transformer":
        table |= {"dim": 12, "heads": 3, "hidden": 7, "layers": 1, "tie": "none", "norm": "pre"}
    else:
        table |= {"embedding": 5, "hidden": 6, "cell": "lstm"}
    if was in ("luong", "bahdanau"):
        table |= {"bidirectional": "all", "score": "concat"}
    switched = switch_kind(table, kind)
    assert switched.pop("kind") == kind
    assert of(kind, **switched)
    if was == kind:
        assert switched | {"kind": kind} == table
    elif "transformer" not in (was, kind):
        assert switched["hidden"] == 6
        assert "score" not in switched


def test_a_switch_keeps_a_misspelt_option_so_that_it_is_reported():
    switched = switch_kind({"kind": "luong", "hiden": 6}, "plain")
    with pytest.raises(ValueError, match="did you mean 'hidden'"):
        of(switched.pop("kind"), **switched)
