import pytest
import torch

from benchmarks import bahdanau
from benchmarks.plain_transformer import PlainTransformer, same_model
from regard.models import Transformer, build
from regard.tasks import TranslateTask
from regard.training import read_config

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
