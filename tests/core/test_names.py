"""Names that people type: aliases of the literature, typos, and what builds in layers."""

import re

import pytest
import torch

import regard
from regard.core.names import ALIASES, build_score, did_you_mean, find_name, find_score
from regard.core.normalize import NORMALIZERS
from regard.core.score import BUILDERS, SCORES, WITH_PARAMETERS, Additive, Concat, General
from regard.layers import HardAttention, LocalAttention, MultiHeadAttention
from regard.models import build
from regard.models.build import KINDS

X = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))


def test_every_alias_leads_to_a_name_and_hides_none():
    known = {*BUILDERS, *NORMALIZERS, *KINDS}
    assert set(ALIASES.values()) <= known
    assert not set(ALIASES) & {*BUILDERS, *NORMALIZERS}
    assert set(BUILDERS) == {*SCORES, *WITH_PARAMETERS}


@pytest.mark.parametrize("alias", ["scaled", "Scaled Dot-Product", "scaled-dot", "SCALED_DOT"])
def test_attend_takes_an_alias(alias):
    assert torch.equal(regard.attend(X, X, X, score=alias), regard.attend(X, X, X))


@pytest.mark.parametrize(
    ("alias", "constructor"),
    [
        ("learnable_weighted", "General(query_dim, key_dim)"),
        ("bilinear", "General(query_dim, key_dim)"),
        ("concatenation", "Concat(query_dim, key_dim, hidden)"),
        ("bahdanau", "Additive(query_dim, key_dim, hidden)"),
    ],
)
def test_attend_raises_with_the_constructor_of_a_score_with_parameters(alias, constructor):
    wanted = f"{alias!r} has parameters: pass score=regard.{constructor}"
    with pytest.raises(ValueError, match=re.escape(wanted)):
        regard.attend(X, X, X, score=alias)


@pytest.mark.parametrize(
    ("alias", "kind"),
    [
        ("learnable_weighted", General),
        ("bilinear", General),
        ("additive", Additive),
        ("bahdanau", Additive),
        ("concatenation", Concat),
    ],
)
def test_layers_and_models_build_a_score_from_its_name(alias, kind):
    for layer in (
        MultiHeadAttention(12, 3, score=alias),
        LocalAttention(12, window=1, score=alias),
        HardAttention(12, score=alias),
    ):
        assert isinstance(layer.score, kind)
        layer(X)
    model = build("luong", "tiny", source_vocabulary=13, target_vocabulary=17, score=alias)
    assert isinstance(model.decoder.attention.score, kind)
    heads = MultiHeadAttention(12, 3, score=["dot", alias, "scaled"])
    assert heads(X, return_map=True).map.shape == (2, 3, 5, 5)
    sizes = {"source_vocabulary": 13, "target_vocabulary": 17}
    transformer = build("transformer", **sizes, dim=12, heads=3, hidden=7, layers=1, score=alias)
    shared = [m for m in transformer.modules() if isinstance(m, kind)]
    assert len(shared) == 3  # every attention has a score of its own


def test_a_layer_keeps_the_plain_name_of_a_score_without_parameters():
    assert MultiHeadAttention(12, 3, score="scaled").score == "scaled_dot"
    assert torch.equal(find_score("multiplicative")(X, X), find_score("dot")(X, X))
    assert build_score("location_based", 3, 5).weight.shape == (512, 3)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("concatination", "concat"), ("bilinaer", "general"), ("scaled-dott", "scaled_dot")],
)
def test_an_unknown_name_finds_the_right_one(name, meant):
    assert f"did you mean {meant!r}?" in did_you_mean(name, BUILDERS)
    for attempt in (
        lambda: regard.attend(X, X, X, score=name),
        lambda: MultiHeadAttention(12, 3, score=name),
        lambda: build("luong", source_vocabulary=13, target_vocabulary=17, score=name),
    ):
        with pytest.raises(ValueError, match=f"did you mean {meant!r}"):
            attempt()


def test_a_known_name_wins_over_an_alias():
    assert find_name("bahdanau", KINDS) == "bahdanau"
    assert find_name("bahdanau", BUILDERS) == "additive"
    assert find_name("AttentionSeq2seq", KINDS) == "attention"
