import json

import pytest

from regard.training.metrics import Metrics, read_metrics
from regard.training.state import State


def test_lines_after_the_checkpoint_and_a_line_cut_off_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": 2, "loss": 0.5}, {"step": 4, "loss": 0.4}, {"step": 6, "loss": 0.3}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 8, "lo')
    metrics = Metrics(tmp_path, State(step=4))
    metrics.write(6, loss=0.25)
    metrics.close()
    assert read_metrics(path) == [*lines[:2], {"step": 6, "loss": 0.25}]


def test_the_end_of_a_run_that_goes_on_is_dropped(tmp_path):
    metrics = Metrics(tmp_path, State(step=0))
    metrics.write(4, loss=0.5)
    metrics.write(4, averaged=[2, 4], **{"valid/accuracy": 1.0})
    metrics.write(4, finished="steps")
    metrics.close()
    Metrics(tmp_path, State(step=4)).close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 4, "loss": 0.5}]


def test_every_line_is_json_even_without_a_number(tmp_path):
    metrics = Metrics(tmp_path, State(step=0))
    metrics.write(1, loss=float("nan"), norm=float("inf"))
    metrics.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"step": 1, "loss": None, "norm": None}


def test_tensorboard_reads_the_scalars_and_each_step_once(tmp_path):
    """Steps 3 and 4 were made, lost in a kill, and made again."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first, values in ((0, [5.0, 4.0, 3.0, 2.0]), (2, [30.0, 20.0])):
        metrics = Metrics(tmp_path, State(step=first))
        for step, value in enumerate(values, start=first + 1):
            metrics.write(step, epoch=1, loss=value)
        metrics.close()
    events = accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert events.Tags()["scalars"] == ["loss"]
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    assert found == [(1, 5.0), (2, 4.0), (3, 30.0), (4, 20.0)]
