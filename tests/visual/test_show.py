"""A trace in the terminal, and a trace's own ways to be seen."""

from pathlib import Path

import pytest
import torch

from regard.trace import Call, Trace
from regard.visual.show import show


def test_maps_between_texts_are_shown_and_the_others_counted() -> None:
    calls = [
        Call("self", torch.eye(2)[None], "source", "source"),
        Call("cross", torch.eye(2).repeat(3, 1, 1), "target", "source"),
    ]
    text = show(Trace(calls, {"source": ["the", "cat"], "target": ["le", "chat"]}), color="plain")
    assert text.startswith("cross, mean of 3 heads\n")
    assert "chat" in text
    assert text.endswith("and 1 more: trace.select(NAME) chooses, trace.page(FILE) shows all")


def test_a_batch_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r"trace\.of\(0\)"):
        show(Trace([Call("a", torch.eye(3).repeat(2, 1, 1, 1))]))


def test_a_trace_shows_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = Trace.of_maps({"a": torch.eye(2)}, queries=["<b>", "b"])
    trace.show(width=40)
    assert "<b>" in capsys.readouterr().out
    assert trace.page(tmp_path / "a.html", language="ko").read_text().count("<regard-page>") == 1
    assert trace._repr_html_().startswith("<iframe")
    batch = Trace([Call("<i>", torch.eye(2).repeat(2, 1, 1, 1))])
    assert batch._repr_html_().startswith("<pre>Trace of 1")
    assert "<i>" not in batch._repr_html_()
