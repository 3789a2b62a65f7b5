"""In a training step, attention does not run on the reference path."""

import os
from pathlib import Path

import pytest
import torch

from regard.attention.observer import observe
from regard.recipes import load_recipe
from regard.tasks import TranslateTask
from regard.training import read_config
from tests.flops import Flops


def share_of_reference(task: TranslateTask) -> float:
    torch.manual_seed(0)
    model, flops = task.build().train(), Flops()
    with observe(flops):
        task.loss(model, task.batch(0, 1)).total.backward()
    return flops.by_path.get("reference", 0) / sum(flops.by_path.values())


@pytest.mark.parametrize("kind", ["luong", "bahdanau", "attention", "transformer"])
def test_at_most_a_twentieth_of_the_flops_is_on_the_reference_path(kind):
    """Of the smallest preset: larger ones have the same maps, or more heads of them."""
    recipe = load_recipe("dates")
    recipe["data"] |= {"count": 300, "valid_count": 2, "sentences": 64}
    recipe["model"] = {"kind": kind, "preset": "tiny"}
    assert share_of_reference(TranslateTask.from_config(read_config(recipe))) <= 0.05


@pytest.mark.parametrize("name", ["dates", "addition", "signal"])
def test_so_it_is_in_recipes_with_generated_data(name):
    recipe = load_recipe(name)
    recipe["data"] |= {"count": 300, "valid_count": 2}
    assert share_of_reference(TranslateTask.from_config(read_config(recipe))) <= 0.05


def test_so_it_is_in_the_recipe_multi30k():
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("REGARD_DATA", beside))
    if not (folder / "multi30k" / "train.en.gz").is_file():
        pytest.skip("needs real data: set REGARD_DATA to a folder that has multi30k in it")
    recipe = load_recipe("multi30k")
    recipe["data"] |= {"folder": str(folder), "valid_count": 2}
    assert share_of_reference(TranslateTask.from_config(read_config(recipe))) <= 0.05
