"""Stored traces of every task with one value changed: drawn, or refused in one sentence."""

import time
from contextlib import suppress
from copy import deepcopy

import pytest

import regard
from regard.tasks import TASKS
from regard.visual.views import figure, show
from tests.attack.mutation import ESCAPE, changed

SECONDS = 20.0  # to draw or refuse, on a busy machine


@pytest.fixture(scope="module")
def traces(tiny_run):
    found = {}
    for task in TASKS:
        predictor = regard.load(tiny_run(task))
        found[task] = predictor.trace(predictor.examples(1)[0])
    return found


@pytest.mark.parametrize("task", TASKS)
def test_a_changed_trace_is_drawn_or_refused(task, traces, attempts, tmp_path):
    for rng in attempts(12):
        trace = deepcopy(traces[task])
        if rng.random() < 0.8:
            about = changed(trace.about, rng)
            trace.about = about if isinstance(about, dict) else {}
        else:  # a file has lists of texts, as many as the maps have rows and columns
            labels = trace.tokens[rng.choice(sorted(trace.tokens))]
            labels[rng.randrange(len(labels))] = rng.choice([ESCAPE, "", "$x$", "א" * 50])
        start = time.monotonic()
        with suppress(ValueError, KeyError):
            text = show(trace, width=72, color="plain")
            assert "\x1b" not in text
        if rng.random() < 0.3:
            with suppress(ValueError, KeyError):
                figure(trace, tmp_path / "a.png")
                assert (tmp_path / "a.png").stat().st_size < 5_000_000
        assert time.monotonic() - start < SECONDS
