"""A resumed run is the run that was started: other data, settings or versions are reported."""

import io
import shutil
import signal

import pytest

import regard
from regard.tasks import TASKS, TranslateTask
from regard.training import Silent, read_config, read_run_config, train
from regard.training.checkpoint import checkpoints
from regard.training.metrics import read_metrics
from regard.training.progress import Lines

PAIRS = "".join(
    f"{word}\t{word[::-1]}\n" for word in ("ab", "abc", "bca", "cab", "bb", "cba", "ca")
)
REVIEWS = "text,label\n" + "".join(
    f"it was {word} indeed,{label}\n" for label, word in (("good", "nice"), ("poor", "dull")) * 20
)


class Messages(Silent):
    """Collects messages."""

    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)


def translation(file, **training):
    data = {"train": str(file), "sentences": 3}
    model = {"kind": "luong", "embedding": 3, "hidden": 5}
    training = {"steps": 2, "threads": 1, **training}
    return {"task": "translate", "data": data, "model": model, "training": training}


def resume(run, *overrides, **options):
    """Resume as the command does."""
    config = read_config(read_run_config(run).model_dump(exclude_none=True), overrides)
    return train(TASKS[config.task].from_config(config, run), config, run, resume=True, **options)


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(PAIRS)
    return file


@pytest.fixture
def run(pairs, tmp_path):
    config = read_config(translation(pairs))
    train(TranslateTask.from_config(config), config, tmp_path / "run")
    return tmp_path / "run"


def test_changed_data_is_refused_with_what_changed(run, pairs):
    pairs.write_text(PAIRS.replace("ab\tba", "xy\tyx"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"has changed since .*run was started \(train: 5 entries"):
        resume(run, "training.steps=4")
    assert {path: path.read_bytes() for path in before} == before


def test_changed_data_is_accepted_on_request_and_the_run_keeps_its_tokenizers(run, pairs):
    before = [path.read_bytes() for path in sorted(run.glob("tokenizer*"))]
    pairs.write_text(PAIRS + "zzz\tzzz\n" * 30)  # z would be the most frequent character
    progress = Messages()
    outcome = resume(run, "training.steps=4", accept_changed_data=True, progress=progress)
    assert outcome.step == 4
    (note,) = progress.texts
    assert "the data has changed" in note
    assert "which is accepted" in note
    assert [path.read_bytes() for path in sorted(run.glob("tokenizer*"))] == before
    assert regard.load(run).translate(["abc"])
    assert resume(run, "training.steps=5").step == 5  # accepted once and for all


def test_classes_stay_those_of_the_run(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_text(REVIEWS)
    settings = {
        "task": "classify",
        "data": {"path": str(file), "valid": 0.3},
        "model": {"dim": 5, "hidden": 5},
        "training": {"epochs": 20, "lr": 0.02, "threads": 1},
    }
    config = read_config(settings)
    train(TASKS["classify"].from_config(config), config, tmp_path / "run")
    # the same reviews; the classes would be sorted the other way round
    file.write_text(REVIEWS.replace(",good", ",zgood").replace(",poor", ",apoor"))
    with pytest.raises(ValueError, match="unknown class 'apoor'; the run knows good, poor"):
        resume(tmp_path / "run", "training.epochs=21", accept_changed_data=True)
    # in another order, with other words first
    rows = REVIEWS.splitlines(keepends=True)
    file.write_text("".join([rows[0], *["unheard of,poor\n"] * 30, *rows[:0:-1]]))
    config = read_run_config(tmp_path / "run")
    task = TASKS["classify"].from_config(config, tmp_path / "run")
    model = regard.load(tmp_path / "run").model
    assert task.evaluate(model)["accuracy"] > 0.6


def test_data_that_was_moved_is_the_same_data(run, pairs, tmp_path):
    moved = tmp_path / "elsewhere.tsv"
    shutil.move(pairs, moved)
    with pytest.raises(FileNotFoundError, match=r"pairs\.tsv"):
        resume(run, "training.steps=3")
    assert resume(run, "training.steps=3", f"data.train={moved}").step == 3


def test_another_working_directory_changes_nothing(pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = read_config(translation("pairs.tsv"))
    train(TranslateTask.from_config(config), config, tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pairs.tsv").write_text("x\ty\n")
    monkeypatch.chdir(tmp_path / "other")
    assert read_run_config(tmp_path / "run").data["train"] == str(pairs)
    assert resume(tmp_path / "run", "training.steps=3").step == 3


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("hidden = 5", "hidden = 7", "config.toml was edited: model.hidden is 7, .* with 5"),
        ("seed = 1", "seed = 2", "config.toml was edited: seed is 2, .* started with 1"),
        ("sentences = 3", "sentences = 2", "data.sentences is 2"),
    ],
)
def test_an_edited_configuration_is_refused(run, before, after, message):
    file = run / "config.toml"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    with pytest.raises(ValueError, match=message):
        resume(run)
    with pytest.raises(ValueError, match=message):
        regard.load(run)


def test_an_edited_training_table_is_reported(run):
    file = run / "config.toml"
    file.write_text(file.read_text().replace("lr = 0.001", "lr = 0.5"))
    progress = Messages()
    assert resume(run, "training.steps=3", progress=progress).step == 3
    (note,) = progress.texts
    assert "config.toml was edited: training.lr was 0.001, is 0.5" in note


def test_another_version_of_torch_is_reported(run, monkeypatch):
    monkeypatch.setattr("regard.training.run_directory.versions", lambda: {"torch": "9.9"})
    progress = Messages()
    assert resume(run, "training.steps=3", progress=progress).step == 3
    (note,) = progress.texts
    assert "→ 9.9" in note
    assert resume(run, "training.steps=4", progress=progress).step == 4
    assert len(progress.texts) == 1  # once


def test_without_a_display_messages_are_warnings(run, monkeypatch):
    monkeypatch.setattr("regard.training.run_directory.versions", lambda: {"torch": "9.9"})
    with pytest.warns(UserWarning, match="other versions"):
        resume(run, "training.steps=3")


def test_other_files_in_a_run_directory_are_of_no_concern(run):
    (run / "notes.txt").write_text("a first thought")
    assert resume(run, "training.steps=3").step == 3
    (run / "notes.txt").write_text("a second thought")
    assert resume(run, "training.steps=4").step == 4


def test_data_that_shrank_does_not_hang(tmp_path, largest, configure):
    run = tmp_path / "run"
    train(largest(), configure(steps=4), run)
    outcome = train(
        largest(batches=2),
        configure(steps=6),
        run,
        resume=True,
        accept_changed_data=True,
        progress=Messages(),
    )
    assert outcome.step == 6


def test_a_lost_best_checkpoint_is_taken_from_the_model(tmp_path, largest, configure):
    config = {"evaluate_every": 2, "keep": 1}
    scores = iter([0.1, 0.9, 0.3, 0.2])

    def evaluate(model):
        return {"accuracy": next(scores)}

    task = largest()
    task.evaluate = evaluate
    run = tmp_path / "run"
    train(task, configure(steps=6, **config), run)
    best = (run / "checkpoints" / "step-4" / "model.safetensors").read_bytes()
    shutil.rmtree(run / "checkpoints" / "step-4")
    outcome = train(task, configure(steps=8, **config), run, resume=True)
    assert outcome.metrics == {"accuracy": 0.9}
    assert (run / "model.safetensors").read_bytes() == best
    (run / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="the weights of step 4, the best so far, are lost"):
        train(task, configure(steps=8, **config), run, resume=True)


def test_a_bit_flip_in_the_model_is_an_error_with_advice(run):
    file = run / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    with pytest.raises(ValueError, match=r"checksum does not match .* --resume .*writes it again"):
        regard.load(run)
    resume(run)
    assert file.read_bytes() == whole
    file.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"is damaged .* --resume .*writes it again"):
        regard.load(run)
    resume(run)
    assert file.read_bytes() == whole


def test_a_model_that_was_lost_is_written_again(tmp_path, largest, configure):
    run = tmp_path / "run"
    train(largest(), configure(steps=4), run)
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").unlink()
    train(largest(), configure(steps=4), run, resume=True)
    assert (run / "model.safetensors").read_bytes() == whole


def test_an_evaluation_that_fails_costs_no_step(tmp_path, largest, configure):
    def missing(model):
        raise ModuleNotFoundError("No module named 'sacrebleu'")

    run, task = tmp_path / "run", largest()
    train(largest(), configure(steps=5), tmp_path / "whole")
    task.evaluate = missing
    with pytest.raises(ModuleNotFoundError):
        train(task, configure(steps=5), run)
    assert list(checkpoints(run)) == [5]
    assert train(largest(), configure(steps=5), run, resume=True).step == 5
    whole, parts = (tmp_path / name / "model.safetensors" for name in ("whole", "run"))
    assert whole.read_bytes() == parts.read_bytes()


def test_an_interrupted_resume_still_owes_its_evaluation(tmp_path, largest, configure):
    class InterruptedStart(Silent):
        def start(self, *_):
            signal.raise_signal(signal.SIGINT)

    def failing(model):
        raise RuntimeError

    run, task, config = tmp_path / "run", largest(), configure(steps=8, evaluate_every=4)
    train(largest(), config, tmp_path / "whole")
    task.evaluate = failing
    with pytest.raises(RuntimeError):
        train(task, config, run)
    outcome = train(largest(), config, run, resume=True, progress=InterruptedStart())
    assert (outcome.reason, outcome.step) == ("interrupted", 4)
    train(largest(), config, run, resume=True)
    for name in ("model.safetensors", "checkpoints/step-8/optimizer.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (run / name).read_bytes()
    steps = [line["step"] for line in read_metrics(run / "metrics.jsonl") if "epoch" in line]
    assert steps == [4, 8]


def test_a_closed_pipe_does_not_stop_a_training(tmp_path, largest, configure):
    class ClosedPipe(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    outcome = train(largest(), configure(epochs=2), tmp_path / "run", progress=Lines(ClosedPipe()))
    assert outcome.reason == "epochs"


def test_a_validation_pair_that_is_too_long_is_left_out(tmp_path):
    train_file, valid_file = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train_file.write_text(PAIRS)
    valid_file.write_text(PAIRS + "a" * 100_000 + "\tb\n")
    settings = translation(train_file)
    settings["data"] |= {"valid": str(valid_file), "longest": 10}
    task = TranslateTask.from_config(read_config(settings))
    assert len(task.valid) == 7
    assert "7; 1 longer than 10 left out" in task.describe()
    assert task.evaluate(task.build())["loss"] > 0


def test_evaluation_never_writes_outside_of_the_run(pairs, tmp_path, capsys):
    from regard.cli import main

    settings = translation(pairs)
    settings["data"]["store"] = str(tmp_path / "store")
    config = read_config(settings)
    train(TranslateTask.from_config(config), config, tmp_path / "run")
    shutil.rmtree(tmp_path / "store")
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "store").exists()
