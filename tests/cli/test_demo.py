import re

import pytest

from regard.cli import main
from regard.cli.demo import ENGLISH, KOREAN
from regard.data.generated import split_of
from regard.recipes import load_recipe
from regard.training.checkpoint import read_json, write_json
from regard.training.run_directory import FORMAT

DAYS = ("1945-05-08", "2015-10-09", "1988-02-14")


@pytest.fixture
def short(monkeypatch, tmp_path):
    """The recipe with little data, so that the demo takes a moment and learns little."""
    recipe = load_recipe("dates")
    recipe["data"] |= {"count": 150, "valid_count": 5, "test_count": 7}
    recipe["training"] = {"steps": 3}
    recipes = {"dates": recipe, "copy": load_recipe("copy")}
    monkeypatch.setattr("regard.recipes.load_recipe", recipes.__getitem__)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_demo_trains_translates_and_shows_the_alignment(short, capsys):
    assert main(["demo"]) == 0
    printed = capsys.readouterr()
    for text in (*ENGLISH, *KOREAN):
        assert re.search(f"{re.escape(text)} +→", printed.out)
    assert "Where it looked" in printed.out
    assert re.search(r"Exact match on 7 unseen dates: \d+\.\d\d%", printed.out)
    assert "step 3" in printed.err
    for name in ("english", "korean"):
        assert (short / f"runs/dates/figures/{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_demo_shows_the_same_model_and_a_fresh_one_trains_again(short, capsys):
    assert main(["demo"]) == 0
    model = short / "runs/dates/model.safetensors"
    before, weights = model.stat().st_mtime_ns, model.read_bytes()
    capsys.readouterr()
    assert main(["demo"]) == 0
    assert "is there already" in capsys.readouterr().out
    assert model.stat().st_mtime_ns == before
    assert main(["demo", "--fresh"]) == 0
    assert model.stat().st_mtime_ns > before
    assert model.read_bytes() == weights  # the same seed


def test_a_run_of_an_older_format_is_refused_and_trained_anew_on_request(short, capsys):
    assert main(["demo"]) == 0
    manifest = short / "runs/dates/manifest.json"
    record = read_json(manifest, FORMAT)
    write_json(manifest, {**record, "format": FORMAT - 1})
    capsys.readouterr()
    assert main(["demo"]) == 1
    line = capsys.readouterr().err
    assert "was written by another version of regard" in line
    assert line.rstrip().endswith("use that version, or train a new run: regard demo --fresh")
    assert line.count("train a new run") == 1
    assert main(["demo", "--fresh"]) == 0


def test_a_folder_with_another_run_is_left_alone(short, capsys):
    assert main(["train", "copy", "--set", "training.epochs=", "--set",
                 "training.steps=1", "--set", "data.count=64", "--set", "data.valid_count=2",
                 "--set", "training.schedule=constant", "--out", "other"]) == 0  # fmt: skip
    for fresh in ([], ["--fresh"]):
        assert main(["demo", "--out", "other", *fresh]) == 1
        assert "holds another run" in capsys.readouterr().err
    assert (short / "other" / "model.safetensors").is_file()


def test_nothing_is_removed_that_the_demo_did_not_write(short, capsys):
    site = short / "site"
    site.mkdir()
    (site / "config.toml").write_text('title = "a web site"\n')
    (site / "page.md").write_text("mine")
    assert main(["demo", "--fresh", "--out", "site"]) == 1
    assert sorted(path.name for path in site.iterdir()) == ["config.toml", "page.md"]
    assert main(["demo"]) == 0
    notes = short / "runs" / "dates" / "notes.md"
    notes.write_text("mine")
    before = sorted(notes.parent.rglob("*"))
    capsys.readouterr()
    assert main(["demo", "--fresh"]) == 1
    assert "holds files that regard did not write (notes.md)" in capsys.readouterr().err
    assert sorted(notes.parent.rglob("*")) == before


def test_the_dates_that_are_shown_are_of_the_test_split():
    from regard.data.dates import WAYS, date

    for iso, *texts in zip(DAYS, ENGLISH, (KOREAN[1], KOREAN[0], KOREAN[2]), strict=True):
        assert split_of(iso) == "test"
        ways = {way(date.fromisoformat(iso)) for way in WAYS}
        assert ways >= set(texts)
