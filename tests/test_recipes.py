"""Recipes are the packaged TOML files, each described by its first line."""

import pytest

from regard.cli import main
from regard.recipes import describe_recipes, load_recipe, resolve_recipe
from regard.tasks import TASKS
from regard.training import read_config


@pytest.mark.parametrize("name", describe_recipes())
def test_a_recipe_is_a_configuration_of_a_task(name):
    assert read_config(load_recipe(name)).task in TASKS


@pytest.mark.parametrize("name", describe_recipes())
def test_a_recipe_is_described_by_one_sentence_that_fits_a_line(name):
    sentence = describe_recipes()[name]
    assert sentence.endswith(".")
    assert len(sentence) > 10
    assert len(f"{name:<21}{sentence}") <= 80


def test_a_loaded_recipe_may_be_changed():
    load_recipe("dates")["data"]["count"] = 1
    assert load_recipe("dates")["data"]["count"] > 1


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'dates'"):
        load_recipe("date")


def test_an_existing_file_wins_over_a_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_recipe("dates") == ("dates", load_recipe("dates"))
    (tmp_path / "dates").write_text("")
    assert resolve_recipe("dates")[1] == (tmp_path / "dates").relative_to(tmp_path)


def test_the_list_shows_every_recipe(capsys):
    assert main(["train", "--list"]) == 0
    shown = capsys.readouterr().out
    for name, sentence in describe_recipes().items():
        assert f"\n{name:<21}{sentence}\n" in f"\n{shown}"
