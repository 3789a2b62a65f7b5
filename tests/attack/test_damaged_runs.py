"""The corruptor: bit flips and truncation of every file of a run are errors or have no effect."""

import shutil

import pytest

import regard
from regard.tasks import TASKS, TranslateTask
from regard.training import Silent, read_config, read_run_config, train

SETTINGS = {
    "task": "translate",
    "data": {"name": "dates", "count": 40, "valid_count": 5, "sentences": 8},
    "model": {"kind": "luong", "embedding": 3, "hidden": 5},
    "training": {"steps": 4, "evaluate_every": 2, "save_every": 3, "average": 2, "threads": 1},
}
SOURCES = ["May 3, 1994", "2001년 7월 5일"]


class Messages(Silent):
    """Collects messages."""

    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)


def resume(run):
    """Train two more steps, as the command does; the bytes of the model."""
    progress = Messages()
    config = read_config(read_run_config(run).model_dump(exclude_none=True), ["training.steps=6"])
    task = TASKS[config.task].from_config(config, run)
    train(task, config, run, resume=True, progress=progress)
    return (run / "model.safetensors").read_bytes(), progress.texts


def predict(run):
    return [(t.text, t.score) for t in regard.load(run).translate(SOURCES)], []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = tmp_path_factory.mktemp("damaged") / "run"
    config = read_config(SETTINGS)
    train(TranslateTask.from_config(config), config, run)
    shutil.rmtree(run / "events", ignore_errors=True)
    return run


@pytest.fixture(scope="module")
def expected(run, tmp_path_factory):
    copy = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(run, copy)
    return {predict: predict(run)[0], resume: resume(copy)[0]}


def damage(path, rng):
    """Flip a bit, cut the end off, or remove the file."""
    content = bytearray(path.read_bytes())
    kind = rng.choice(["flip"] * 6 + ["cut", "empty", "removed"])
    if kind == "removed":
        path.unlink()
        return kind
    if kind == "flip":
        place = rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
        kind = f"bit flipped in byte {place}"
    else:
        del content[0 if kind == "empty" else rng.randrange(len(content)) :]
    path.write_bytes(content)
    return kind


@pytest.mark.parametrize("use", [predict, resume])
def test_a_damaged_file_is_an_error_or_has_no_effect(run, expected, tmp_path, attempts, use):
    files = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    for rng in attempts(20):
        copy = tmp_path / "run"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        file = rng.choice(files)
        what = f"{file}: {damage(copy / file, rng)}"
        print(what)
        found, messages, error = None, [], ""
        try:
            found, messages = use(copy)
        except (ValueError, OSError) as raised:
            error = str(raised)
        if error:
            assert file.name in error, (what, error)
            assert "\n" not in error, what
        else:  # a learning rate that was edited is reported
            assert found == expected[use] or any(file.name in text for text in messages), what
