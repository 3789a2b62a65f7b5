"""Fine-tuning: `training.init` starts from the weights and tokenizers of another run."""

import json
import shutil
from pathlib import Path

import pytest

import regard
from regard.data import load_tokenizer
from regard.training import read_config, read_run_config
from regard.training.progress import Silent
from regard.training.weights import read_tensors

WORDS = [f"{a}{b}{c}" for a in "abcd" for b in "efgh" for c in "ijkl"]
TOKENIZERS = ("tokenizer.source.json", "tokenizer.target.json")


def tables(path, **training):
    return {
        "task": "translate",
        "data": {"train": str(path), "sentences": 16},
        "training": {"lr": 1e-2, "log_every": 1, "threads": 1, **training},
    }


def train(tables, out, **options):
    return regard.train(tables, out, progress=Silent(), **options)


def losses(run):
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row["loss"] for row in rows if "lr" in row]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run that writes words backwards."""
    folder = tmp_path_factory.mktemp("init")
    (folder / "a.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in WORDS))
    config = tables(folder / "a.tsv", steps=60, evaluate_every=60)
    config["model"] = {"kind": "luong", "preset": "tiny", "dropout": 0.0}
    train(config, folder / "first")
    return folder / "first"


@pytest.fixture
def other(tmp_path):
    """Other words, with a letter that the first run does not know and that is not written."""
    path = tmp_path / "b.csv"
    rows = [f'"{word}z","{word[::-1]}"\n' for word in WORDS]
    path.write_text("source,target\n" + "".join(rows))
    return path


def test_a_run_starts_from_the_weights_and_tokenizers_of_another(first, other, tmp_path):
    run = tmp_path / "tuned"
    tuned = train(tables(other, epochs=2, init=str(first)), run)
    for name in TOKENIZERS:
        assert (run / name).read_bytes() == (first / name).read_bytes()
    assert "z" not in load_tokenizer(run / TOKENIZERS[0]).decode(tuned.source.encode("aez"))
    config = read_run_config(run)
    assert config.training.init == str(first)
    assert config.model == read_run_config(first).model
    scratch = tables(other, epochs=2) | {"model": config.model}
    train(scratch, tmp_path / "scratch")
    assert losses(run)[0] < 0.7 * losses(tmp_path / "scratch")[0]


def test_no_step_at_a_tiny_rate_changes_the_weights_that_it_started_with(first, other, tmp_path):
    train(
        tables(other, steps=1, init=str(first)) | {"seed": 7},
        tmp_path / "a",
        settings=["training.lr=1e-12"],
    )
    before, after = (read_tensors(run / "model.safetensors") for run in (first, tmp_path / "a"))
    assert before.keys() == after.keys()
    assert all(before[name].allclose(after[name], atol=1e-6) for name in before)


def test_a_tuned_run_is_resumed_without_the_one_it_started_from(first, other, tmp_path):
    copy = shutil.copytree(first, tmp_path / "copy")
    train(tables(other, steps=3, init=str(copy)), tmp_path / "halved")
    shutil.rmtree(copy)
    train({}, tmp_path / "halved", resume=True, settings=["training.steps=6"])
    train(tables(other, steps=6, init=str(first)), tmp_path / "whole")
    assert losses(tmp_path / "halved") == losses(tmp_path / "whole")


def test_a_run_killed_before_it_wrote_its_tokenizers_takes_them_again(first, other, tmp_path):
    run = tmp_path / "killed"
    train(tables(other, steps=1, init=str(first)), run)
    for path in run.iterdir():
        if path.name != "config.toml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    train({}, run, resume=True)
    for name in TOKENIZERS:
        assert (run / name).read_bytes() == (first / name).read_bytes()


def test_a_model_of_other_shapes_is_refused_and_leaves_nothing(first, other, tmp_path):
    config = tables(other, steps=1, init=str(first))
    config["model"] = {"kind": "luong", "preset": "tiny", "hidden": 48}
    with pytest.raises(ValueError, match=r"training\.init: .* has shape .* there and "):
        train(config, tmp_path / "a")
    with pytest.raises(ValueError, match=r"training\.init: .* of the task translate, not classify"):
        train({"task": "classify", "training": config["training"]}, tmp_path / "a")
    with pytest.raises(FileNotFoundError, match=r"training\.init: .*not a run directory"):
        train(tables(other, steps=1, init=str(tmp_path / "absent")), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_path_becomes_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = read_config({"task": "translate", "training": {"steps": 1, "init": "runs/a"}})
    assert config.training.init == str(Path("runs/a").absolute())
