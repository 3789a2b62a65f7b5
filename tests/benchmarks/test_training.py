import math
import sys
from pathlib import Path

import pytest
import torch

from regard.models import Transformer, build
from regard.tasks import TranslateTask
from regard.training import read_config

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not part of the package
from benchmarks import bahdanau, dates_book
from benchmarks.plain_transformer import PlainTransformer, same_model

SIZES = {"layers": 2, "dim": 12, "heads": 3, "hidden": 24, "dropout": 0.3}


def task_of(**model) -> TranslateTask:
    data = {"name": "copy", "count": 64, "valid_count": 5, "sentences": 7, "joint": True}
    config = {"task": "translate", "data": data, "model": model, "training": {"steps": 1}}
    config["loss"] = {"label_smoothing": 0.1}
    return TranslateTask.from_config(read_config(config))


def test_the_plain_transformer_has_our_loss_when_it_has_our_weights():
    task = task_of(kind="transformer", tie="all", **SIZES)
    plain = PlainTransformer(len(task.target_tokenizer), **SIZES)
    ours = task.build()
    assert isinstance(ours, Transformer)
    ours = same_model(plain, ours)
    batch = task.batch(0, 0)
    expected = plain.eval().loss(batch)
    torch.testing.assert_close(task.loss(ours.eval(), batch).total, expected)


def test_the_plain_model_of_the_book_has_our_loss():
    task = task_of(kind="attention", embedding=3, hidden=5)
    task.loss_settings = task.loss_settings.model_copy(update={"label_smoothing": 0.0})
    model = task.build()
    plain = dates_book.PlainAttention(model)
    for step in range(3):
        batch = task.batch(0, step)
        torch.testing.assert_close(task.loss(model, batch).total, plain.loss(batch))


@pytest.mark.parametrize("given", [False, True])
def test_the_textbook_loop_gives_our_scores(monkeypatch, given):
    sizes = {"BATCH": 2, "SOURCE": 5, "TARGET": 3, "HIDDEN": 7, "VOCABULARY": 11}
    for name, size in sizes.items():
        monkeypatch.setattr(bahdanau, name, size)
    torch.manual_seed(2)
    model = build("bahdanau", source_vocabulary=11, target_vocabulary=11, embedding=7, hidden=7)
    source, target = torch.randint(11, (2, 5)), torch.randint(11, (2, 3))
    contexts = torch.randn(2, 3, 14) if given else None
    ours = bahdanau.Ours(model)(source, target, contexts)
    theirs = bahdanau.Textbook(model)(source, target, contexts)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_goal_that_is_never_reached_takes_for_ever(monkeypatch):
    monkeypatch.setattr(dates_book, "MOST", 3)
    monkeypatch.setattr(dates_book, "EVERY", 1)
    task = task_of(kind="attention", embedding=3, hidden=5)
    assert dates_book.seconds_to_goal(lambda batch: None, lambda batch: 0, task) == math.inf
    everything = dates_book.seconds_to_goal(
        lambda batch: None, lambda batch: len(batch.target), task
    )
    assert everything == pytest.approx(0.0, abs=1.0)
