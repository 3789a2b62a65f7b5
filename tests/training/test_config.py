"""A configuration is checked as a whole, and every complaint names the key."""

import re
import tomllib

import pytest

from regard.training import Training, read_config, write_config

FILE = """
task = "translate"
seed = 5

[data]
name = "dates"

[training]
epochs = 3
betas = [0.8, 0.95]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dates.toml"
    path.write_text(FILE)
    return path


def test_a_file_is_read_with_defaults_for_what_it_does_not_say(file):
    config = read_config(file)
    assert (config.task, config.seed, config.data) == ("translate", 5, {"name": "dates"})
    assert config.model == {}
    assert config.training == Training(epochs=3, betas=(0.8, 0.95))


@pytest.mark.parametrize(
    ("override", "table", "key", "value"),
    [
        ("training.lr=1e-3", "training", "lr", 1e-3),
        ("training.lr = 2", "training", "lr", 2.0),
        ("training.schedule=plateau", "training", "schedule", "plateau"),
        ('training.schedule="plateau"', "training", "schedule", "plateau"),
        ("training.betas=[0.5, 0.6]", "training", "betas", (0.5, 0.6)),
    ],
)
def test_an_override_goes_over_the_file(file, override, table, key, value):
    assert getattr(getattr(read_config(file, [override]), table), key) == value


def test_an_override_reaches_tables_that_belong_to_the_task(file):
    config = read_config(file, ["model.kind=luong", "model.hidden=7", "data.joint=true", "seed=7"])
    assert config.model == {"kind": "luong", "hidden": 7}
    assert config.data == {"name": "dates", "joint": True}
    assert config.seed == 7


def test_an_empty_override_goes_back_to_the_default(file):
    assert read_config(file, ["training.betas="]).training.betas == Training(epochs=1).betas


def test_overrides_leave_a_given_mapping_alone():
    recipe = {"task": "translate", "data": {"name": "dates"}, "training": {"steps": 7}}
    read_config(recipe, ["data.name=copy", "training.steps=11"])
    assert recipe["data"] == {"name": "dates"}
    assert recipe["training"] == {"steps": 7}


def test_what_is_written_reads_back_equal_with_seed_and_versions(file, tmp_path):
    config = read_config(file, ["training.minutes=0.5", "model.kind=luong", "loss.smoothing=0.1"])
    written = tmp_path / "config.toml"
    write_config(config, written)
    values = tomllib.loads(written.read_text())
    assert values["seed"] == 5
    assert set(values["versions"]) == {"regard", "python", "torch", "numpy"}
    again = read_config(written)
    assert again.model_copy(update={"versions": {}}) == config
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("training.lrr=1", "unknown key training.lrr; did you mean 'lr'"),
        ("training.wramup=1", "did you mean 'warmup'"),
        ("sed=1", "unknown key sed; did you mean 'seed'"),
        ("trainin.lr=1", "unknown key trainin; did you mean 'training'"),
        ("training.lr=fast", "training.lr should be a number, got 'fast'"),
        ("training.lr=0", "training.lr should be greater than 0, got 0"),
        ("training.lr=nan", "training.lr should be a finite number"),
        ("training.lr=true", "training.lr should be a number, got true"),
        ("training.steps=1.5", "training.steps should be a whole number"),
        ("training.schedule=cosin", "should be 'constant', 'inverse_sqrt', 'cosine' or 'plateau'"),
        ("training.schedule=inverse_sqrt", "needs warmup"),
        ("training.betas=[0.5, 1.0]", "betas must be at least 0 and below 1"),
        ("training.epochs=", "steps, epochs or minutes must be given"),
        ("training=7", "training must be a table, got 7"),
        ("data=7", "data should be a table (data.KEY = VALUE), got 7"),
        ("lr=0.1", "unknown key lr; did you mean training.lr?"),
        ("seed=-1", "seed should be greater than or equal to 0"),
        ("seed.x=1", "seed is a value, not a table"),
        ("lr", "expected table.key=value"),
        ("=3", "expected table.key=value"),
        ("training.=3", "expected table.key=value"),
    ],
)
def test_a_bad_override_is_one_sentence(file, override, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)) as error:
        read_config(file, [override])
    assert "\n" not in str(error.value)


def test_cosine_needs_an_end():
    with pytest.raises(ValueError, match="cosine schedule needs steps or epochs"):
        read_config({"task": "t", "training": {"minutes": 3, "schedule": "cosine"}})


def test_a_misspelt_table_is_named_before_what_it_leaves_out():
    with pytest.raises(ValueError, match="unknown key trainng; did you mean 'training'"):
        read_config({"task": "t", "trainng": {"steps": 3}})


def test_a_missing_task_is_named():
    with pytest.raises(ValueError, match="task is missing"):
        read_config({"training": {"steps": 3}})


def test_a_bad_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"configuration file .*none.toml"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(IsADirectoryError, match="is a directory"):
        read_config(tmp_path)
    (tmp_path / "bad.toml").write_text("task = ")
    with pytest.raises(ValueError, match=r"bad.toml is not TOML"):
        read_config(tmp_path / "bad.toml")
    (tmp_path / "empty.toml").touch()
    with pytest.raises(ValueError, match=r"empty.toml is empty: a configuration has a task"):
        read_config(tmp_path / "empty.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bytes.toml is not TOML"):
        read_config(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("training.lr=abc", "training.lr should be a number, got 'abc'"),
        ("training.steps=true", "training.steps should be a whole number, got true"),
        ("training.betas=1", "training.betas should be a list, got 1"),
        ("data=3", "data should be a table (data.KEY = VALUE), got 3"),
        ("data.train=3", "data.train should be text or a list, got 3"),
        ("data.source=1.5", "data.source should be a whole number or text, got 1.5"),
        ("data.joint=1", "data.joint should be true or false, got 1"),
        ("model.hidden=abc", "model.hidden of luong should be a whole number, got 'abc'"),
        ("model.hidden=-1", "model.hidden must be 1 or more, got -1"),
    ],
)
def test_a_wrong_type_names_the_key_in_the_words_of_toml(override, complaint):
    from regard.tasks import TASKS

    tables = {"task": "translate", "data": {"name": "dates", "count": 7}, "training": {"steps": 1}}
    with pytest.raises(ValueError, match=re.escape(complaint)):
        TASKS["translate"].from_config(read_config(tables, [override])).build()


def test_another_kind_replaces_the_settings_of_the_old_one(file):
    file.write_text(
        FILE.replace(
            "[training]", '[model]\nhidden = 7\nbidirectional = "all"\n[training]\nlr = 0.1'
        )
    )
    notes: list[str] = []
    config = read_config(file, ["model.kind=transformer", "model.dropout=0.5"], note=notes.append)
    assert config.model == {"kind": "transformer", "preset": "tiny", "dropout": 0.5}
    assert config.training.lr == 1e-3
    assert notes == [
        "model.kind = 'transformer' replaces settings of luong: without model.hidden = 7, without "
        "model.bidirectional = 'all', model.preset = 'tiny', training.lr = 0.001"
    ]
    notes.clear()
    config = read_config(file, ["model.kind=attention", "training.lr=0.2"], note=notes.append)
    assert config.model == {"kind": "attention", "hidden": 7}
    assert config.training.lr == 0.2
    assert "without model.bidirectional = 'all'" in notes[0]
    notes.clear()
    kept = read_config(file, ["model.kind=luong"], note=notes.append).model
    assert (kept["bidirectional"], notes) == ("all", [])
