"""Comparisons: variants, targets, and a model that diverges."""

import pytest

from regard.tasks.compare import Row, _ranked, compare
from regard.tasks.variants import Variant, model_table, variants

RECIPE = {
    "task": "translate",
    "data": {"name": "copy", "count": 70, "valid_count": 11, "sentences": 7, "metric": "accuracy"},
    "model": {"kind": "luong", "embedding": 5, "hidden": 7},
    # a Transformer beside recurrent models is trained with another rate
    "training": {"steps": 3, "lr": 1e38, "evaluate_every": 1, "log_every": 1},
}


def test_a_diverged_model_is_marked_and_the_others_continue(tmp_path):
    chosen = variants(["luong", "transformer"])
    found = compare(RECIPE, chosen, tmp_path)
    good, bad = found.rows
    assert (good.name, bad.name) == ("transformer", "luong-general")
    assert good.diverged is None
    assert len(good.curve) == 3
    assert found.target == pytest.approx(0.9 * good.quality)
    assert bad.quality is bad.seconds is bad.entropy is None
    assert "at step" in bad.diverged
    assert bad.parameters > 0
    assert compare(RECIPE, chosen, tmp_path) == found


def test_every_combination_comes_once_and_only_where_it_means_something():
    found = variants(
        ["plain", "luong", "transformer"], ["dot"], ["softmax", "sparsemax"], ["dot", "efficient"]
    )
    assert [variant.name for variant in found] == [
        *("plain", "luong-dot", "luong-dot-sparsemax", "transformer", "transformer-efficient")
    ]


def test_the_variant_decides_on_the_attention_of_the_encoder_and_the_normalizer():
    recipe = {"kind": "transformer", "dim": 12, "encoder_attention": "efficient"}
    table = model_table(recipe, Variant("transformer", encoder="dot"), one_way=False)
    assert table == {"kind": "transformer", "dim": 12}
    table = model_table(recipe, Variant("transformer", encoder="efficient"), one_way=False)
    assert table == recipe
    recipe = {"kind": "luong", "attention": "local", "window": 2}
    table = model_table(recipe, Variant("luong", "dot", "sparsemax"), one_way=False)
    assert table == {"kind": "luong", "attention": "sparsemax", "score": "dot"}


@pytest.mark.parametrize(
    ("sign", "qualities", "target"),
    [(1, [0.0, 0.5], 0.45), (1, [0.0, 0.0], None), (-1, [0.2, 0.0], 0.0), (1, [None], None)],
)
def test_the_time_is_taken_to_a_quality_that_was_learned(sign, qualities, target):
    rows = [
        Row(str(quality), quality, None, 3.0, 7, None, None, [(2.0, quality)] if quality else [])
        for quality in qualities
    ]
    found = _ranked(rows, "exact", sign, None)
    assert found.target == target
    times = {row.quality: row.seconds_to_quality for row in found.rows}
    assert times == {quality: 2.0 if quality == 0.5 else None for quality in qualities}


def test_each_decoder_has_its_own_score_by_default():
    names = [variant.name for variant in variants(["attention", "luong", "bahdanau", "gnmt"])]
    assert names == ["attention", "luong-general", "bahdanau-additive", "gnmt-additive"]
    (chosen,) = variants(["bahdanau"], ["bilinear"])
    assert chosen.name == "bahdanau-general"


def test_the_attention_model_of_the_book_is_compared(tmp_path):
    recipe = RECIPE | {"model": RECIPE["model"] | {"bidirectional": "all"}}
    found = compare(recipe, variants(["attention"]), tmp_path, settings=["training.lr=1e-3"])
    assert [row.name for row in found.rows] == ["attention"]
    assert found.rows[0].entropy > 0
