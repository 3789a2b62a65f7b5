from pathlib import Path

import pytest
import torch

from regard.models.hard import HardReader
from regard.recipes import load_recipe
from regard.tasks import load
from regard.tasks.hard import Data, HardPredictor, HardTask, LossSettings, Model
from regard.training import read_config, read_settings, train
from regard.visual.views import figure


@pytest.mark.parametrize("estimator", ["straight_through", "gumbel", "reinforce"])
def test_each_estimator_learns_where_to_attend(tmp_path: Path, estimator: str) -> None:
    config = read_config(
        load_recipe("hard"),
        [f"model.estimator={estimator}", "data.held_out=300", "training.steps=300"],
    )
    outcome = train(HardTask.from_config(config), config, tmp_path / "run")
    assert outcome.metrics["right_choice"] >= 0.99
    predictor = load(tmp_path / "run")
    found = predictor.predict([([3, 1, 4, 1, 5], [2, 1, 0, 3, 4]), ([9, 2, 6], [0, 4, 3])])
    assert [(one.digit, one.position) for one in found] == [(4, 2), (9, 0)]
    traces = [predictor.trace(row) for row in predictor.examples(11)]
    assert [trace.about["chosen"] for trace in traces] == [t.about["marked"] for t in traces]
    figure(traces, tmp_path / "rows.png")
    assert (tmp_path / "rows.png").stat().st_size > 5000
    assert predictor.predict([predictor.parse("3 1 4* 1′ 5‴")])[0].digit == 4


def test_a_batch_is_a_function_of_epoch_and_step_and_an_epoch_has_every_row_once() -> None:
    task = HardTask(Data(count=23, rows=7, held_out=5), Model(), LossSettings())
    assert torch.equal(task.batch(2, 1).digits, task.batch(2, 1).digits)
    assert not torch.equal(task.batch(2, 1).digits, task.batch(3, 1).digits)
    rows = [
        tuple(row) for step in range(task.steps(0)) for row in task.batch(0, step).digits.tolist()
    ]
    assert sorted(rows) == sorted(map(tuple, task.train.digits.tolist()))


def test_bad_rows_and_tables_are_clear_errors() -> None:
    predictor = HardPredictor(HardReader(10, 5))
    with pytest.raises(ValueError, match="row 1: 2 digits and 1 marks"):
        predictor.predict([([1, 2], [0])])
    with pytest.raises(ValueError, match="row 1: digits are whole numbers from 0 to 9"):
        predictor.predict([([1, 10], [0, 1])])
    with pytest.raises(ValueError, match="row 1: 1 digits and 0 marks"):
        predictor.predict([([1], [])])
    with pytest.raises(ValueError, match="expected digits with marks such as"):
        predictor.parse("3 x*")
    with pytest.raises(ValueError, match="longest=3 is below shortest=5"):
        read_settings(Data, {"longest": 3}, "data")
