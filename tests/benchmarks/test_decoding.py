"""The decoding benchmark runs as its user runs it, and all engines write the same."""

import json
from importlib.util import find_spec

import pytest

from benchmarks.decoding import main
from regard.data import data_folder

HERE = (data_folder() / "multi30k" / "train.en.gz").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="Multi30k is not in the folder that REGARD_DATA names")
@pytest.mark.skipif(find_spec("ctranslate2") is None, reason="ctranslate2 is not installed")
def test_all_engines_give_the_same_answers(tmp_path, capsys):
    file = tmp_path / "rows.json"
    main(["--quick", "--json", str(file)])
    rows = json.loads(file.read_text())
    peers = {"torch.nn, all scores", "torch.nn, no cache", "ctranslate2 beam"}
    assert {row["peer"] for row in rows} >= peers
    assert all(row["same"] > 0.95 for row in rows)  # float32: a tie may fall either way
    assert all(row["ratio"] > 0 for row in rows)
    assert "joeynmt: left out" in capsys.readouterr().out


def test_a_place_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--json", "no/such/folder/rows.json"])
    assert "does not exist" in capsys.readouterr().err


def test_an_unknown_peer_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "nobody"])
    assert "is part of no peer's name: torch.nn, all scores" in capsys.readouterr().err
