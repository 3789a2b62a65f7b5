"""Classification of documents: learning, loading, settings."""

import json

import pytest
import torch

import regard
from regard.cli import main
from regard.recipes import load_recipe
from regard.tasks import Classifier, load
from regard.tasks.classify import ClassifyTask
from regard.training import read_config, train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained on generated reviews for a few seconds."""
    torch.set_num_threads(1)
    config = read_config(
        load_recipe("classify"), ["data.count=800", "training.epochs=5", "training.threads=1"]
    )
    folder = tmp_path_factory.mktemp("classify") / "run"
    outcome = train(ClassifyTask.from_config(config), config, folder)
    assert outcome.metrics["test_accuracy"] > 0.95  # half of the words say the opposite
    return folder


def test_the_authors_verdict_is_what_counts(run):
    classifier = load(run)
    assert isinstance(classifier, Classifier)
    text = "rain fell all evening .\nthe critic found the film awful .\ni found the cast clever ."
    mirror = "rain fell all evening .\nthe critic found the film clever .\ni found the cast awful ."
    good, poor = classifier.classify([text, mirror])
    assert (good.label, poor.label) == ("pos", "neg")
    assert sum(good.probabilities.values()) == pytest.approx(1)
    trace = classifier.trace(text)
    assert trace.about["label"] == "pos"
    assert trace.about["sentence_lengths"] == [5, 7, 6]
    words, sentences, document = (
        trace[name].map.dense()[0] for name in ("words", "sentences", "document")
    )
    torch.testing.assert_close(words.sum(-1), torch.ones(3))
    assert not words[1, :5].any()  # a sentence attends to its own words
    assert float(sentences.sum()) == pytest.approx(1)
    torch.testing.assert_close(document, sentences @ words)


def test_the_command_shows_the_document(run, tmp_path, capsys):
    page, figure = tmp_path / "a.html", tmp_path / "a.png"
    text = "i found the film moving .\nthe <b>critic</b> found it dull ."
    assert main(["see", str(run), text, "--out", str(page), "--out", str(figure)]) == 0
    capsys.readouterr()
    assert main(["see", str(run), text]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("pos (")
    assert "i found the film moving ." in shown
    assert "moving" in page.read_text()
    assert "<b>critic" not in page.read_text()
    assert figure.stat().st_size > 1000
    assert main(["predict", str(run), text, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["input"] == text
    assert record["prediction"]["label"] == "pos"
    assert main(["predict", str(run), " "]) == 1
    assert "at least one word" in capsys.readouterr().err


def test_a_dry_run_describes_the_documents(capsys):
    assert main(["train", "classify", "--dry-run", "--set", "data.count=60"]) == 0
    assert "49 for training, 5 for validation, 6 for test" in capsys.readouterr().out


def test_the_split_of_a_file_is_reproducible_and_disjoint(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("text,label\n" + "".join(f"word{n} here,{'ab'[n % 2]}\n" for n in range(40)))
    config = read_config(
        {"task": "classify", "training": {"steps": 1}}, [f"data.path={path}", "data.batch=7"]
    )
    one, two = ClassifyTask.from_config(config), ClassifyTask.from_config(config)
    assert one.train.inputs == two.train.inputs
    parts = [set(split.inputs) for split in (one.train, one.valid, one.test)]
    assert [len(part) for part in parts] == [32, 4, 4]
    assert not (parts[0] & parts[1]) | (parts[0] & parts[2]) | (parts[1] & parts[2])
    first = [one.batch(3, step) for step in range(one.steps(3))]
    assert torch.equal(first[1].words, two.batch(3, 1).words)
    assert sum(len(batch.labels) for batch in first) == 32


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.pth=x"], "unknown key data.pth; did you mean 'path'"),
        (["model.dimm=3"], "unknown key model.dimm; did you mean 'dim'"),
        (["loss.smoothing=1"], "unknown key loss.smoothing"),
        (["data.path=a.csv", "data.name=nsmc"], "give name or path, not both"),
        (["data.fold=3"], "the data has no folds"),
        (["data.tokenizer=wrds"], "did you mean 'words'"),
    ],
)
def test_a_wrong_setting_is_a_clear_error(settings, message):
    config = read_config({"task": "classify", "training": {"steps": 1}}, settings)
    with pytest.raises(ValueError, match=message):
        ClassifyTask.from_config(config)


def test_missing_data_is_a_clear_error(tmp_path):
    settings = ["data.name=nsmc", f"data.folder={tmp_path}"]
    config = read_config({"task": "classify", "training": {"steps": 1}}, settings)
    with pytest.raises(FileNotFoundError, match="set REGARD_DATA"):
        ClassifyTask.from_config(config)
    assert regard.__version__
