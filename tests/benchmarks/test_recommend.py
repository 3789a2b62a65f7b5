"""Followers are counted in training alone, and recommended after what they follow."""

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch

from regard.recipes import load_recipe
from regard.tasks.recommend import RecommendTask
from regard.training import read_config

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not part of the package
from benchmarks.recommend import Followers


def test_followers_are_counted_in_training_alone():
    config = read_config(load_recipe("recommend"), ["data.count=23", "data.catalogue=31"])
    task = RecommendTask.from_config(config)
    counts: Counter[tuple[int, int]] = Counter()
    for history in task.ratings.histories:
        known = history[:-2].tolist()  # the last two are for validation and test
        counts.update(pairwise(known))
    model = Followers(task, reach=1, decay=1.0)
    past, lengths = torch.arange(31).unsqueeze(1), torch.ones(31, dtype=torch.long)
    found = model(torch.zeros(31), torch.zeros(31, 0), past, lengths).scores
    for before in range(31):
        total = sum(n for (first, _), n in counts.items() if first == before)
        expected = torch.tensor([counts[before, item] / (total + 5) for item in range(31)])
        torch.testing.assert_close(found[before], expected, atol=1e-3, rtol=0)
    unknown = model(torch.zeros(1), torch.zeros(1, 0), past[:1], torch.zeros(1)).scores
    assert unknown.max() < 1e-3  # without a past popularity is all there is
