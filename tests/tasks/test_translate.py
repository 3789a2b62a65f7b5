import pytest
import torch
import torch.nn.functional as F

from regard.recipes import load_recipe
from regard.tasks import TranslateTask
from regard.training.config import read_config
from regard.training.task import Task

SMALL = {
    "task": "translate",
    "data": {"name": "reverse", "count": 70, "valid_count": 11, "sentences": 7},
    "model": {"kind": "luong", "embedding": 5, "hidden": 7},
    "training": {"steps": 1},
}


def make(*overrides, config=SMALL) -> TranslateTask:
    return TranslateTask.from_config(read_config(config, overrides))


def test_it_implements_the_task_protocol():
    task: Task = make()
    assert (task.unit, task.metric, task.larger_is_better) == ("tokens", "exact", True)
    assert task.steps(0) == 10


def test_a_batch_depends_on_the_epoch_and_the_step_alone():
    one, two = make(), make()
    one.batch(0, 0)
    assert torch.equal(one.batch(3, 5).source, two.batch(3, 5).source)
    assert not torch.equal(one.batch(2, 5).index, one.batch(3, 5).index)


def test_an_epoch_has_every_pair_once():
    task = make("data.sentences=", "data.tokens=200")
    seen = [i for step in range(task.steps(1)) for i in task.batch(1, step).index.tolist()]
    assert sorted(seen) == list(range(70))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_real_target_tokens(smoothing):
    task = make(f"loss.label_smoothing={smoothing}")
    model = task.build()
    batch = task.batch(0, 0)
    loss = task.loss(model, batch)
    logits = model.output(model(batch.source, batch.source_lengths, batch.target[:, :-1]))
    expected = F.cross_entropy(
        logits.flatten(0, 1),
        batch.target[:, 1:].flatten(),
        ignore_index=0,
        label_smoothing=smoothing,
        reduction="sum",
    )
    assert loss.count == int((batch.target_lengths - 1).sum())
    torch.testing.assert_close(loss.total, expected)


def test_long_pairs_are_left_out_of_training():
    task = make("data.longest=6")
    longest = max(int(task.batch(0, step).source_lengths.max()) for step in range(task.steps(0)))
    assert longest == 6
    assert "longer than 6 left out" in task.describe()
    assert "test pairs        1,000" in task.describe()
    with pytest.raises(ValueError, match="longest=1 leaves no pair"):
        make("data.longest=1")


def test_evaluation_gives_figures_of_the_validation_pairs():
    task = make()
    model = task.build().eval()
    metrics = task.evaluate(model)
    assert set(metrics) == {"loss", "accuracy", "exact"}
    assert metrics["exact"] == 0.0
    batches = list(task.evaluation_batches())
    assert sorted(i for batch in batches for i in batch.index.tolist()) == list(range(11))
    losses = [task.loss(model, batch) for batch in batches]
    total, count = sum(float(loss.total.detach()) for loss in losses), sum(x.count for x in losses)
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-5)


def test_any_pronunciation_of_a_word_is_right(tmp_path):
    file = tmp_path / "a.dict"
    file.write_text("AB  AH B\nAB(2)  EY B\nBA  B AH\n")
    task = make(
        "data.name=", f"data.train={file}", f"data.valid={file}", "data.target_tokenizer=phonemes"
    )
    assert task._exact(["EY B", "EY B", "B AH"]) == 1.0
    assert task._exact(["AH B", "AH B", "B EY"]) == 0.5


def test_words_are_evaluated_by_bleu():
    task = make("data.target_tokenizer=words", "data.valid_count=3")
    assert task.metric == "bleu"
    assert "bleu" in task.evaluate(task.build().eval())


def test_a_loss_as_metric_is_better_when_smaller():
    assert not make("data.metric=loss").larger_is_better


def test_frames_need_the_width_in_the_model():
    overrides = ("data.name=signal", "data.count=20")
    task = make(*overrides, "model.frames=12")
    batch = task.batch(0, 0)
    assert task.loss(task.build(), batch).count == int((batch.target_lengths - 1).sum())
    assert "float frames" in task.describe()
    with pytest.raises(ValueError, match=r"model\.frames is missing"):
        make(*overrides).build()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.label_smothing=0.1", "did you mean 'label_smoothing'"),
        ("loss.label_smoothing=1.0", "loss.label_smoothing should be less than 1"),
        ("model.kind=luonk", "did you mean 'luong'"),
        ("model.hiden=3", "did you mean 'hidden'"),
        ("model.kind=language", "reads no source"),
    ],
)
def test_a_wrong_setting_is_a_clear_error(override, message):
    with pytest.raises(ValueError, match=message):
        make(override).build()


@pytest.mark.parametrize("name", ["dates", "reverse", "copy", "addition", "signal"])
def test_every_generated_recipe_makes_a_step(name):
    config = load_recipe(name)
    config["data"] |= {"count": 20, "valid_count": 2}
    task = make(config=config)
    loss = task.loss(task.build(), task.batch(0, 0))
    loss.total.backward()
    assert loss.count > 0
