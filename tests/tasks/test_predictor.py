"""Every task has a predictor with the same methods, and a trace that is drawn and stored."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard.tasks import TASKS, Predictor, check_options, evaluate_run, predict_options
from regard.visual.terminal import show as show_maps
from regard.visual.views import VIEWS, show

LINES = {
    "translate": ["May 3, 1994", {"source": "2001년 7월 5일"}],
    "classify": ["A good film. I liked it.", {"text": "so bad"}],
    "pair": [
        "is there a red square on the left ?\tred square, , ; , , ; , , blue circle",
        {"left": "is it ?", "right": [["", "red square", ""], [""] * 3, [""] * 3]},
    ],
    "recommend": ["1", {"user": 2}, {"profile": {}, "past": ["3"]}],
    "graph": ["document 7", {"node": "document 1"}],
    "memory": ["3", {"size": 2}],
    "image": ["1", {"pixels": [[0] * 12] * 12}],
    "language": ["27 May", {"prompt": "on"}],
    "hard": ["3 1* 4′", {"digits": [3, 1], "marks": [0, 2]}],
}
WRONG = {
    "translate": {"txt": "a"},
    "classify": " ",
    "pair": "one text",
    "recommend": {"name": "x"},
    "graph": "nobody",
    "memory": "0",
    "image": {"pixels": [[0]]},
    "language": {"text": 3},
    "hard": "a b",
}


@pytest.mark.parametrize("task", TASKS)
def test_lines_and_json_become_inputs_and_predictions_become_text_and_json(task, tiny_run):
    predictor = regard.load(tiny_run(task))
    assert isinstance(predictor, Predictor)
    assert predictor.task == task
    inputs = [predictor.parse(record) for record in LINES[task]]
    options = {"length": 5} if task == "language" else {}
    found = predictor.predict(inputs, **options)
    assert len(found) == len(inputs)
    assert all(isinstance(predictor.to_text(one), str) for one in found)
    assert json.loads(json.dumps(predictor.to_json(found[0]), allow_nan=False))
    assert predictor.predict([], **options) == []
    assert len(predictor.predict(predictor.examples(2), **options)) == 2
    with pytest.raises(ValueError, match=r"expected|needs|should be|unknown|whole number"):
        predictor.parse(WRONG[task])
    with pytest.raises(TypeError, match="expected a list of"):
        predictor.predict("text", **options)


@pytest.mark.parametrize("task", TASKS)
def test_a_stored_trace_is_drawn_like_a_fresh_one(task, tiny_run, tmp_path, capsys):
    predictor = regard.load(tiny_run(task))
    trace = predictor.trace(predictor.parse(LINES[task][0]))
    assert trace.about["task"] == task
    assert task in VIEWS
    trace.save(tmp_path / "a.attn")
    stored = regard.load_trace(tmp_path / "a.attn")
    assert show(stored, width=72, color="plain") == show(trace, width=72, color="plain")
    files = [tmp_path / "fresh.svg", tmp_path / "stored.svg"]
    for one, file in zip((trace, stored), files, strict=True):
        one.figure(file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert stored.page(tmp_path / "a.html").stat().st_size > 2000
    stored.show(width=72)
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("task", TASKS)
def test_a_trace_without_what_its_view_needs_is_a_clear_error(task):
    empty = regard.trace.Trace.of_maps({"a": torch.eye(2)}, queries=["x", "y"], task=task)
    if VIEWS[task].show is show_maps or task in ("translate", "memory"):  # maps are enough
        assert show(empty, width=40)
    else:
        with pytest.raises(ValueError, match=r"lacks what a view of the task|no call"):
            show(empty, width=40)


def test_an_option_that_a_task_does_not_take_is_an_error(tiny_run):
    classifier, translator = regard.load(tiny_run("classify")), regard.load(tiny_run("translate"))
    assert check_options(translator, {"beam": 5}) == {"beam": 5}
    assert {"beam", "n_best", "penalty"} <= set(predict_options(translator))
    with pytest.raises(ValueError, match="task classify does not take the option beam"):
        check_options(classifier, {"beam": 5})
    with pytest.raises(ValueError, match=r"did you mean 'beam'"):
        check_options(translator, {"bean": 5}, "trace")


def test_load_checks_the_expected_kind_of_predictor(tiny_run):
    assert regard.load(tiny_run("classify"), regard.tasks.Classifier).classes == ["neg", "pos"]
    assert regard.load(tiny_run("classify"), Predictor).task == "classify"
    with pytest.raises(ValueError, match="is a run of the task classify, expected translate"):
        regard.load(tiny_run("classify"), regard.tasks.Translator)


@pytest.mark.parametrize("task", ["classify", "recommend", "graph", "language"])
def test_a_run_is_evaluated_on_its_own_data(task, tiny_run):
    metrics = evaluate_run(tiny_run(task))
    assert TASKS[task].metric in metrics


def test_training_in_python_returns_the_predictor(tmp_path, capsys):
    tables = {
        "task": "hard",
        "data": {"count": 20, "held_out": 5},
        "training": {"steps": 2, "threads": 1},
    }
    predictor = regard.train(tables, tmp_path / "run", settings=["model.dim=5"])
    assert predictor.predict([([3], [0])])[0].position == 0
    assert "step 2" in capsys.readouterr().err
    assert regard.train(tables, tmp_path / "run", resume=True, settings=["training.steps=3"])
    with pytest.raises(FileExistsError):
        regard.train(tables, tmp_path / "run")
    with pytest.raises(ValueError, match="out is missing"):
        regard.train(tables)
    with pytest.raises(ValueError, match="did you mean 'dates'"):
        regard.train("date", tmp_path / "other")


def test_importing_tasks_loads_no_plotting():
    code = "import sys, regard.tasks; print([m for m in sys.modules if 'matplotlib' in m])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
    sources = Path(regard.tasks.__file__).parent.glob("*.py")
    assert not [path.name for path in sources if "visual.figure" in path.read_text("utf-8")]
