"""The benchmark runs as its user runs it, checks answers, and writes what it promises."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import attention
from benchmarks.attention import main, run_case
from benchmarks.attention_cases import Case, curves, exponent
from benchmarks.contest import Contest, Row

KEYS = {
    "case", "ours", "peer", "seconds", "peer_seconds", "ratio", "bytes", "peer_bytes", "max_error",
}  # fmt: skip


def test_rows_have_the_promised_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    main(["--quick", "--only", "plain (8", "--no-memory", "--json", str(file)])
    rows = json.loads(file.read_text())
    assert {row["case"] for row in rows} == {
        "plain (8,8,32,64), forward",
        "plain (8,8,32,64), forward + backward",
    }
    for row in rows:
        assert set(row) == KEYS
        assert row["ratio"] == pytest.approx(row["peer_seconds"] / row["seconds"])
        assert row["max_error"] < 1e-5
    assert "| SDPA alone |" in capsys.readouterr().out


def test_a_wrong_answer_stops_the_benchmark() -> None:
    wrong = Contest(ours=lambda: torch.ones(3), peers={"peer": lambda: torch.zeros(3)})
    with pytest.raises(SystemExit, match="peer differs from regard"):
        run_case(Case("wrong", lambda: wrong, backward=False), rounds=1, memory=False)


def test_a_peer_that_cannot_run_is_named_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> torch.Tensor:
        raise RuntimeError("no compiler")

    contest = Contest(ours=lambda: torch.ones(3), peers={"broken": broken})
    assert run_case(Case("odd", lambda: contest, backward=False), rounds=1, memory=False) == []
    assert "broken cannot run here: no compiler" in capsys.readouterr().err


def test_exponent_of_a_power_is_the_power() -> None:
    lengths = [64, 128, 512]
    assert exponent(lengths, [n**1.5 / 7 for n in lengths]) == pytest.approx(1.5)


def test_a_missing_folder_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--json", "no/such/folder/x.json"])
    assert "does not exist" in capsys.readouterr().err


def test_a_name_that_no_case_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "nothing"])
    line = capsys.readouterr().err
    assert "is part of no case's name; known: additive, Additive module" in line
    assert line.count("soft cap") == 1  # each kind of case once
    with pytest.raises(SystemExit, match="2"):
        main(["--quick", "--only", "L=8192"])
    assert "is not a case of --quick" in capsys.readouterr().err


def test_what_was_measured_before_an_interrupt_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(case, **_):
        yield Row(case.name, "regard", "peer", 1.0, 2.0, 2.0, None, None, 0.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(attention, "run_case", measured)
    file = tmp_path / "rows.json"
    arguments = ["--quick", "--only", "plain (8", "--no-memory", "--json", str(file)]
    with pytest.raises(KeyboardInterrupt):
        main(arguments)
    assert [row["ratio"] for row in json.loads(file.read_text())] == [2.0]
    assert "| plain (8,8,32,64), forward | peer |" in capsys.readouterr().out


def test_the_full_curves_of_the_chart_compute_the_same() -> None:
    full = ("textbook softmax", "torch SDPA", "regard")
    textbook, *others = (curves(67)[name]() for name in full)
    for other in others:
        torch.testing.assert_close(other, textbook, rtol=1e-4, atol=1e-5)
