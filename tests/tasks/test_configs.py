"""The files of configs/ are the recipes of the same name."""

from pathlib import Path

import pytest

from regard.tasks import RECIPES
from regard.training import read_config

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = (
    *("dates", "multi30k", "multi30k-de-en", "multi30k-en-fr", "multi30k-en-fr-gnmt"),
    *("pronounce", "tatoeba"),
    *("classify", "movie_reviews", "nsmc", "recommend", "opposites", "pair", "tatoeba-pairs"),
    *("language", "tinyshakespeare"),
    *("graph", "hard", "image", "digits", "fashion", "memory"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_what_its_recipe_says(name):
    assert read_config(CONFIGS / f"{name}.toml") == read_config(RECIPES[name])
