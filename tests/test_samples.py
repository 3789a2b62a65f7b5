"""The models that come with regard: small, complete, and right about dates they have not seen."""

from datetime import date
from pathlib import Path

import pytest

import regard
from regard.cli.demo import ENGLISH, KOREAN
from regard.samples import sample_runs

RIGHT = {
    day.isoformat()
    for day in (date(1945, 5, 8), date(2015, 10, 9), date(1988, 2, 14))  # those of the demo
}


@pytest.mark.parametrize("run", sample_runs(), ids=lambda run: run.name)
def test_a_sample_reads_dates_it_has_not_seen(run: Path) -> None:
    assert sum(file.stat().st_size for file in run.iterdir()) <= 400_000
    translations = regard.load(run).translate([*ENGLISH, *KOREAN], return_map=True)
    assert {t.text for t in translations} == RIGHT
    assert all(t.map.shape[-1] == len(t.source) for t in translations)
