"""`regard train` from the command line: its output, its files and its errors."""

import json
import os
import re
from pathlib import Path

import pytest

from regard.cli import main
from tests.cli.interrupt import interrupted_once

SMALL = """
task = "translate"

[data]
name = "reverse"
count = 70
valid_count = 11
sentences = 7

[model]
kind = "luong"
embedding = 5
hidden = 7
dropout = 0.3

[training]
steps = 4
evaluate_every = 2
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of one's own to work in, with a configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "small.tsv").write_text("one\t1\n")
    return tmp_path


def train(*arguments):
    return main(["train", *arguments])


def sentence(capsys):
    """The only line on standard error; nothing is on standard output."""
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    return line


def test_a_file_is_trained_into_a_run_of_its_name(here, capsys):
    assert train("small.toml") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("runs/small: ")
    assert "finished by training.steps after 4 steps" in shown.out
    assert "step 2 of 4 · epoch 1 · valid" in shown.err
    assert {"config.toml", "model.safetensors", "metrics.jsonl"} <= set(os.listdir("runs/small"))


def test_a_task_needs_no_file(here, capsys):
    small = ("--set", "data.count=70", "--set", "data.valid_count=11", "--set", "training.epochs=1")
    assert train("dates", "--set", "model.hidden=7", *small, "--out", "here/dates") == 0
    assert capsys.readouterr().out.startswith("here/dates: ")
    assert (here / "here" / "dates" / "model.safetensors").is_file()


def test_a_dry_run_prints_everything_and_writes_nothing(here, capsys):
    before = sorted(here.rglob("*"))
    assert train("small.toml", "--dry-run", "--set", "training.lr=0.25") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for part in ("lr = 0.25", "[versions]", "decoder.attention", "training pairs", "tokens/s"):
        assert part in shown.out
    assert re.search(r"time: about \d+ s without evaluation, 4 steps of \d\.\d{3} s", shown.out)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    "model",
    [
        ["kind=transformer", "preset=tiny", "dropout=0.3", "attention_dropout=0.1", "tie=output"],
        ["kind=bahdanau", "preset=tiny", "dropout=0.3", "attention_dropout=0.1"],
    ],
)
def test_a_resumed_run_of_a_real_model_has_the_same_bytes(here, model):
    """Dropout by hash, compiled kernels and tied weights included."""
    text = SMALL.replace('kind = "luong"\nembedding = 5\nhidden = 7\ndropout = 0.3\n', "")
    (here / "real.toml").write_text(text)
    options = [part for option in model for part in ("--set", f"model.{option}")]
    assert train("real.toml", *options, "--out", "whole") == 0
    assert train("real.toml", *options, "--out", "parts", "--set", "training.steps=2") == 0
    assert train("--resume", "--out", "parts", "--set", "training.steps=4") == 0
    for file in ("model.safetensors", "checkpoints/step-4/optimizer.safetensors"):
        assert (here / "whole" / file).read_bytes() == (here / "parts" / file).read_bytes()


def test_ctrl_c_saves_and_prints_how_to_resume(here, capsys):
    with interrupted_once(here, "run/checkpoints/step-*"):
        assert train("small.toml", "--out", "run", "--set", "training.steps=100000") == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    last = shown.err.splitlines()[-1]
    assert "which is saved; to continue: regard train --resume run" in last
    step = int(last.split()[3].rstrip(",").replace(",", ""))
    assert (here / "run" / "checkpoints" / f"step-{step}").is_dir()
    arguments = ["--resume", "--out", "run", "--set", f"training.steps={step + 1}"]
    assert train(*arguments) == 0
    assert f"resuming after step {step:,}" in capsys.readouterr().err


def test_the_latest_run_is_resumed_and_so_is_a_named_one(here, capsys):
    for name in ("first", "second"):
        assert train("small.toml", "--out", f"runs/{name}") == 0
    capsys.readouterr()
    more = ("--set", "training.steps=5")
    assert train("--resume", *more) == 0
    shown = capsys.readouterr()
    assert "resuming runs/second" in shown.err
    assert shown.out.startswith("runs/second: ")
    assert train("--resume", "runs/first", *more) == 0
    assert capsys.readouterr().out.startswith("runs/first: ")
    assert train("--resume", "runs/first", "--out", "runs/second") == 2
    assert "once" in capsys.readouterr().err


def test_every_key_is_described(capsys):
    from regard.cli.keys import settings_keys, task_keys
    from regard.models.build import KINDS, options_of
    from regard.tasks import TASKS
    from regard.training.config import Training

    assert train("--keys") == 0
    shown = capsys.readouterr().out
    keys = {name: task_keys(name) for name in TASKS}
    for table in (
        settings_keys(Training),
        *(t for tables in keys.values() for t in tables.values()),
    ):
        for key in table:
            assert key.about, key.name
            assert f"\n  {key.name} " in shown
    options = {name for kind in KINDS if kind != "language" for name in options_of(kind)[2:]}
    known = {key.name for key in keys["translate"]["model"]}
    assert options - {"activation"} == known - {"kind", "preset"}
    assert train("--keys", "graph") == 0
    assert "of translate" not in capsys.readouterr().out


def test_a_finished_run_is_reported_and_can_be_extended(here, capsys):
    train("small.toml")
    capsys.readouterr()
    before = (here / "runs/small/metrics.jsonl").read_text()
    assert train("small.toml", "--resume") == 0
    shown = capsys.readouterr()
    assert "was finished already, by training.steps" in shown.out
    assert "--set training.steps=" in shown.out
    assert (here / "runs/small/metrics.jsonl").read_text() == before
    assert train("small.toml", "--resume", "--set", "training.steps=5") == 0
    assert "after 5 steps" in capsys.readouterr().out


def test_a_file_that_was_edited_since_is_noted(here, capsys):
    train("small.toml")
    (here / "small.toml").write_text(SMALL.replace("steps = 4", "steps = 6"))
    capsys.readouterr()
    assert train("small.toml", "--resume") == 0
    note = capsys.readouterr().err
    assert "keeps its own training.steps = 4" in note
    assert "--set training.steps=6" in note


def test_another_model_or_seed_in_the_file_is_noted(here, capsys):
    train("small.toml")
    edited = SMALL.replace("hidden = 7", "hidden = 11").replace(
        '"translate"', '"translate"\nseed = 5'
    )
    (here / "small.toml").write_text(edited)
    capsys.readouterr()
    assert train("small.toml", "--resume") == 0
    notes = capsys.readouterr().err.splitlines()
    assert [note.partition("; ")[0] for note in notes] == [
        "note: runs/small keeps its own seed = 1",
        "note: runs/small keeps its own model.hidden = 7",
    ]


def test_changed_data_is_refused_or_accepted(here, capsys):
    words = ("ab", "abc", "bca", "cab", "bb", "cba", "ca")
    pairs = "".join(f"{word}\t{word}\n" for word in words)
    (here / "pairs.tsv").write_text(pairs)
    text = SMALL.replace('name = "reverse"\ncount = 70\n', 'train = "pairs.tsv"\n')
    (here / "own.toml").write_text(text)
    assert train("own.toml") == 0
    (here / "pairs.tsv").write_text(pairs.replace("b", "x"))
    capsys.readouterr()
    longer = ("own.toml", "--resume", "--set", "training.steps=5")
    assert train(*longer) == 1
    assert "the data has changed since runs/own was started" in sentence(capsys)
    assert train(*longer, "--accept-changed-data") == 0
    assert "which is accepted" in capsys.readouterr().err


def test_an_existing_run_is_refused(here, capsys):
    train("small.toml")
    capsys.readouterr()
    assert train("small.toml") == 1
    assert "runs/small holds a run: resume it with --resume" in sentence(capsys)


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        ([], 2, "give a recipe, such as dates, or a configuration file"),
        (["date"], 2, "unknown recipe 'date'; did you mean 'dates'"),
        (["none.toml"], 1, "none.toml does not exist"),
        (["smal.toml"], 1, "file smal.toml does not exist; did you mean small.toml?"),
        (["small"], 2, "unknown recipe 'small'; did you mean the file small.toml?"),
        (["small.tsv"], 2, "small.tsv is data, not a configuration"),
        (["."], 1, "is a directory"),
        (["small.toml", "--set", "training.stps=3"], 2, "did you mean 'steps'"),
        (["small.toml", "--set", "training.lr=fast"], 2, "training.lr should be a number"),
        (["small.toml", "--set", "training.lr"], 2, "expected table.key=value"),
        (["small.toml", "--set", "data.nmae=x"], 2, "did you mean 'name'"),
        (["small.toml", "--set", "task=translat"], 2, "did you mean 'translate'"),
        (["--resume", "--out", "none"], 1, "none is not a run directory"),
        (["small.toml", "--out", "/proc/run"], 1, "/proc/run"),
        (["small.toml", "--out", "small.toml"], 1, "small.toml is a file, not a directory"),
    ],
)
def test_bad_usage_is_one_sentence(here, capsys, arguments, status, complaint):
    assert train(*arguments) == status
    assert complaint in sentence(capsys)


def newest(here):
    return max((here / "runs/small/checkpoints").iterdir(), key=lambda p: int(p.name[5:]))


def test_a_damaged_checkpoint_is_one_sentence_and_nothing_is_lost(here, capsys):
    train("small.toml")
    capsys.readouterr()
    file = newest(here) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert train("small.toml", "--resume", "--set", "training.steps=6") == 1
    line = sentence(capsys)
    assert "model.safetensors is damaged" in line
    assert "step-4 to resume from step-2" in line
    now = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert {p for p in before if before[p] != now.get(p)} <= {
        here / "runs/small" / name for name in ("config.toml", "manifest.json")
    }


def test_a_checkpoint_of_another_version_is_one_sentence(here, capsys):
    train("small.toml")
    capsys.readouterr()
    file = newest(here) / "state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 7}))
    assert train("small.toml", "--resume") == 1
    line = sentence(capsys)
    assert "another version of regard (format 7" in line
    assert line.endswith("use that version, or train a new run")  # an earlier checkpoint is no help


def test_what_a_run_was_begun_with_cannot_change(here, capsys):
    train("small.toml")
    capsys.readouterr()
    assert train("small.toml", "--resume", "--set", "model.hidden=11") == 1
    assert "started with model.hidden = 7" in sentence(capsys)


def test_a_loss_without_a_number_is_one_sentence(here, capsys):
    assert train("small.toml", "--set", "training.lr=1e38", "--set", "training.eps=1e-38") == 1
    err = capsys.readouterr().err
    assert "at step " in err
    assert "in epoch 1" in err


@pytest.mark.parametrize(
    "kind", ["plain", "peeky", "attention", "luong", "bahdanau", "gnmt", "transformer"]
)
def test_every_kind_of_model_is_trained_on_dates(kind, tmp_path, capsys):
    sets = ["data.count=40", "data.valid_count=5", "training.steps=2", f"model.kind={kind}"]
    options = [part for one in sets for part in ("--set", one)]
    assert main(["train", "dates", *options, "--out", str(tmp_path / "run")]) == 0
    err = capsys.readouterr().err
    assert ("without model.bidirectional = 'all'" in err) == (
        kind in ("attention", "gnmt", "transformer")
    )


@pytest.mark.parametrize("recipe", ["copy", "reverse", "addition", "mine.toml"])
def test_every_kind_of_model_is_made_for_every_recipe_of_pairs(recipe, tmp_path, monkeypatch):
    from regard.models.build import KINDS
    from regard.recipes import resolve_recipe
    from regard.tasks.translate import TranslateTask
    from regard.training import read_config

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(
        'task = "translate"\n[data]\nname = "copy"\n[model]\nkind = "transformer"\ndim = 12\n'
        'heads = 3\nlayers = 1\nnorm = "pre"\n[training]\nsteps = 1\n'
    )
    for kind in set(KINDS) - {"language"}:
        sets = ["data.count=20", "data.valid_count=5", f"model.kind={kind}"]
        assert TranslateTask.from_config(read_config(resolve_recipe(recipe)[1], sets)).build()


def test_a_dry_run_names_long_pairs_and_shows_a_part_of_them(here, capsys):
    lines = [f"a{n} b\tc{n}\n" for n in range(60)] + ["x" * 1_000 + "\tlong\n"]
    Path("long.tsv").write_text("".join(lines))
    config = '[data]\ntrain = "long.tsv"\nsentences = 8\n[model]\nkind = "luong"\nhidden = 5\n'
    Path("long.toml").write_text(f'task = "translate"\n{config}[training]\nsteps = 1\n')
    assert train("long.toml", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert "1 of over 10 times the average, the longest of 1,000 tokens" in shown
    assert "data.longest leaves them out" in shown
    assert max(map(len, shown.splitlines())) < 500
    assert train("long.toml", "--dry-run", "--set", "data.longest=50") == 0
    assert "long pairs" not in capsys.readouterr().out
