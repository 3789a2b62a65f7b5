"""Pairs of inputs: learning what a bag of words cannot, both maps, settings."""

import random

import pytest
import torch
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from regard.cli import main
from regard.data.scenes import generate_questions
from regard.recipes import load_recipe
from regard.tasks import PairPredictor, load
from regard.tasks.pair import PairTask
from regard.training import read_config, train
from regard.visual.views import show

BASE = {"task": "pair", "training": {"epochs": 8, "lr": 5e-3, "threads": 1}}


def bag_accuracy(task):
    """Of logistic regression on the words, and things, of each side."""

    def words(side, tokenizer):
        return side.names() if tokenizer is None else tokenizer.tokens(tokenizer.encode(side))

    def bags(pairs):
        return [
            {
                **{f"left {word}": 1 for word in words(left, task.left)},
                **{f"right {word}": 1 for word in words(right, task.right)},
            }
            for left, right in pairs.inputs
        ]

    model = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=300))
    model.fit(bags(task.train), task.train.labels)
    return model.score(bags(task.test), task.test.labels)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two words, and whether they are the same: neither side alone is informative."""
    path = tmp_path_factory.mktemp("pair") / "same.tsv"
    draw, words = random.Random(3), ["ant", "bee", "cat", "dog", "eel"]
    rows = []
    for _ in range(600):
        left = draw.choice(words)
        same = draw.random() < 0.5
        right = left if same else draw.choice([word for word in words if word != left])
        filler = draw.choice(["so", "oh"])
        rows.append(f"{filler} {left}\t{right} {filler}\t{'same' if same else 'other'}\n")
    path.write_text("".join(rows))
    return path


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    torch.set_num_threads(1)
    settings = [f"data.path={file}", "data.tokenizer=words", "data.batch=32", "model.dim=24"]
    config = read_config(BASE, [*settings, "model.dropout=0.0"])
    task = PairTask.from_config(config)
    assert bag_accuracy(task) < 0.7
    folder = tmp_path_factory.mktemp("pair") / "run"
    assert train(task, config, folder).metrics["test_accuracy"] > 0.95
    return folder


def test_both_maps_are_shown(run, tmp_path, capsys):
    predictor = load(run)
    assert isinstance(predictor, PairPredictor)
    same, other = predictor.predict([("oh cat", "cat oh"), ("oh cat", "dog oh")])
    assert (same.label, other.label) == ("same", "other")
    trace = predictor.trace(("oh cat", "cat oh"))
    assert trace.tokens["left"] == ["oh", "cat"]
    assert float(trace["left"].map.dense().sum()) == pytest.approx(1)
    assert [len(row) for row in trace.about["affinity"]] == [2, 2]
    figure = tmp_path / "pair.png"
    assert main(["see", str(run), "so bee", "bee so", "--out", str(figure)]) == 0
    capsys.readouterr()
    assert main(["see", str(run), "so bee", "bee so"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("same (")
    assert "left" in shown
    assert "right" in shown
    assert figure.stat().st_size > 1000
    assert main(["predict", str(run), "so bee", "bee so"]) == 0
    assert capsys.readouterr().out.startswith("same (")
    assert main(["predict", str(run), "so bee"]) == 1
    assert main(["predict", str(run), "so bee", " "]) == 1
    assert "both texts need at least one word" in capsys.readouterr().err
    with pytest.raises(TypeError, match="should be a text, got Scene"):
        predictor.predict([("oh cat", generate_questions(2)[0].scene)])


def test_aligned_attention_shows_the_words_that_meet(file, tmp_path, capsys):
    settings = [f"data.path={file}", "data.tokenizer=words", "data.batch=32", "model.dim=24"]
    settings += ["model.attention=aligned", "model.layers=0", "model.dropout=0.0"]
    config = read_config(BASE, settings)
    task, run = PairTask.from_config(config), tmp_path / "run"
    assert train(task, config, run).metrics["test_accuracy"] > 0.9
    trace = load(run).trace(("oh cat", "cat oh"))
    left, right = trace["left"], trace["right"]
    assert (left.queries, left.keys, right.queries, right.keys) == (
        *("left", "right"),
        *("right", "left"),
    )
    for call in (left, right):
        torch.testing.assert_close(call.map.dense().sum(-1), torch.ones(1, 2))
    assert float(left.map.dense()[0, 1, 0]) > 0.7  # cat, and cat
    assert float(right.map.dense()[0, 0, 1]) > 0.7
    assert show(trace, width=60, color="plain").startswith("same (")
    trace.figure(tmp_path / "pair.png")
    assert (tmp_path / "pair.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="aligned attention has no glimpses, got glimpses=2"):
        PairTask.from_config(read_config(BASE, [*settings, "model.glimpses=2"])).build()


@pytest.mark.slow
def test_it_learns_to_compare_two_things_of_a_scene(tmp_path):
    config = read_config(load_recipe("pair"), ["training.epochs=1", "training.threads=1"])
    task = PairTask.from_config(config)
    train(task, config, tmp_path / "run")
    predictor = load(tmp_path / "run")
    about_two = [n for n, one in enumerate(task.test.inputs) if one[0].endswith("one ?")][:300]
    inputs = [task.test.inputs[n] for n in about_two]
    found = predictor.predict(inputs)
    right = [
        one.label == task.test.classes[task.test.labels[n]]
        for n, one in zip(about_two, found, strict=True)
    ]
    assert sum(right) / len(right) > 0.7  # a half by chance
    trace = predictor.trace(inputs[0])
    assert trace["right"].shape == (1, 3, 9)
    trace.figure(tmp_path / "scene.png")
    assert "glimpse 3" in show(trace, width=60, color="plain")


def test_scenes_are_the_default_and_worth_nothing_as_bags(tmp_path, capsys):
    settings = ["data.count=400", "training.steps=2", "model.dim=12"]
    config = read_config(BASE, settings)
    task = PairTask.from_config(config)
    assert bag_accuracy(task) == pytest.approx(0.5, abs=0.01)
    batch = task.batch(0, 0)
    assert batch.right.shape == (64, 9, 12)
    assert torch.equal(batch.left, PairTask.from_config(config).batch(0, 0).left)
    train(task, config, tmp_path / "run")
    figure = tmp_path / "scene.svg"
    assert main(["see", str(tmp_path / "run"), "--example", "3", "--out", str(figure)]) == 0
    assert figure.stat().st_size > 1000
    assert main(["predict", str(tmp_path / "run"), "is it ?", "no scene"]) == 1
    assert "a scene is three rows" in capsys.readouterr().err


def test_a_dry_run_describes_the_pairs(capsys):
    assert main(["train", "pair", "--dry-run", "--set", "data.count=40"]) == 0
    assert "40 for training" in capsys.readouterr().out


def test_translations_are_reshuffled_in_every_epoch(tmp_path):
    folder = tmp_path / "tatoeba_ko_en"
    folder.mkdir()
    rows = [f"sentence {n}\t문장 {n}\tby\n" for n in range(300)]
    (folder / "kor.txt").write_text("".join(rows))
    settings = ["data.name=tatoeba", f"data.folder={tmp_path}", "data.tokenizer=characters"]
    task = PairTask.from_config(read_config(BASE, settings))
    assert not {left for left, _ in task.train.inputs} & {left for left, _ in task.test.inputs}
    assert sum(task.test.labels) * 2 == len(task.test)
    one, two = task.batch(0, 0), task.batch(1, 0)
    assert not (one.left.shape == two.left.shape and torch.equal(one.left, two.left))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.cont=40"], "unknown key data.cont; did you mean 'count'"),
        (["data.count=41"], "data.count"),
        (["data.path=a.tsv", "data.name=scenes"], "give name or path, not both"),
        (["model.layer=2"], "unknown key model.layer; did you mean 'layers'"),
    ],
)
def test_a_wrong_setting_is_a_clear_error(settings, message):
    with pytest.raises(ValueError, match=message):
        PairTask.from_config(read_config(BASE, settings))
