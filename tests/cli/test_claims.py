"""`regard claims`: tables, charts, JSON and errors."""

import json

from regard.claims import CLAIMS
from regard.cli.app import run


def test_a_claim_is_printed_with_its_sentence_and_verdict(capsys, tmp_path):
    assert run(["claims", "order", "scale", "--quick", "--out", str(tmp_path / "charts")]) == 0
    out, err = capsys.readouterr()
    assert CLAIMS["order"].sentence in out
    assert out.count("agrees: ") == 2
    assert "measuring scale" in err
    assert [file.name for file in (tmp_path / "charts").iterdir()] == ["scale.png"]


def test_claims_as_json(capsys):
    assert run(["claims", "order", "--quick", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["agrees"] is True
    assert {row["input"] for row in found["rows"]} == {"no positions", "sinusoidal positions"}


def test_all_claims_are_listed(capsys):
    assert run(["claims", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name} " in out and claim.sentence in out for name, claim in CLAIMS.items())


def test_an_unknown_claim_is_named_with_the_nearest(capsys):
    assert run(["claims", "scal"]) == 2
    assert "did you mean 'scale'" in capsys.readouterr().err
