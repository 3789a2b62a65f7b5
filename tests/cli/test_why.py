"""`regard why` on trained models of dates and on small checkpoints, in both languages."""

import json
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.tasks import why

SAMPLES = Path(regard.__file__).parent / "samples"
VERDICTS = {"confirmed", "refuted", "undecided"}


@pytest.mark.parametrize("kind", ["transformer", "luong", "bahdanau"])
def test_a_model_of_dates_says_which_letters_a_month_comes_from(kind):
    found = why(regard.load(SAMPLES / f"dates-{kind}"), "24 Aug 2003", said="8", instead="7")
    assert found.before.endswith("-0")
    assert found.probabilities[0] > 0.5
    letters = {claim.name for claim in found.claims if claim.kind == "word"}
    assert letters & set("Aug")
    assert all(claim.verdict in VERDICTS for claim in found.claims)
    top = max(range(11), key=lambda j: found.methods["occlusion"][j])
    assert found.words[top] in "Aug"
    assert any(claim.verdict == "confirmed" for claim in found.claims)
    assert (len(found.heads) > 1) == (kind == "transformer")


@pytest.mark.parametrize("kind", ["causal", "bytes", "encoder_decoder"])
def test_checkpoints_are_explained(kind, checkpoint):
    predictor = regard.load(checkpoint(kind))
    text = "because the animal was"
    if kind == "encoder_decoder":
        found = why(predictor, text)
        assert found.words[-1] == "</s>"
        assert all(claim.name != "</s>" for claim in found.claims)
    else:
        found = why(predictor, text, said="tired", instead="street")
        assert found.words[:2] == ["because", "the"]
        assert "".join(found.words).startswith("becausetheanimalwas")
    assert len(found.claims) >= 2
    assert found.said != found.instead
    if kind == "causal":
        inner = why(
            predictor,
            "because the",
            at=1,
            written=predictor.encode("animal was")["input_ids"][0].tolist(),
        )
        assert inner.words[0] == "because"
    again = why(predictor, text) if kind == "encoder_decoder" else None
    assert again is None or again == found


def test_the_command_prints_tables_json_and_a_page_in_two_languages(tmp_path, capsys):
    sample, page = str(SAMPLES / "dates-luong"), tmp_path / "why.html"
    given = [sample, "24 Aug 2003", "--said", "8", "--instead", "7"]
    assert run(["why", *given]) == 0
    text = capsys.readouterr().out
    assert "Why '8', and not '7'?" in text
    assert "gradient_attention" in text
    assert run(["why", *given, "--lang", "ko", "--out", str(page)]) == 0
    assert str(page) in capsys.readouterr().out
    html = page.read_text("utf-8")
    assert 'lang="ko"' in html
    assert "정말 그런가?" in html
    assert run(["why", *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["said"] == "8"
    assert {claim["verdict"] for claim in found["claims"]} <= VERDICTS


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["24 Aug 2003", "--said", "x"], "did not write 'x'; it wrote '2003-08-24'"),
        (["24 Aug 2003", "--said", "2003-08-24", "--instead", "2003"], "begins with the other"),
        (["24 Aug 2003", "--lang", "de"], "--lang should be"),
        (["24 Aug 2003", "--out", "a.png"], "--out should end in .html"),
        ([" "], "nothing to see in an empty text"),
    ],
)
def test_what_cannot_be_explained_is_said(given, words, capsys):
    assert run(["why", str(SAMPLES / "dates-luong"), *given]) != 0
    assert words in capsys.readouterr().err


def test_a_model_that_writes_nothing_is_refused(checkpoint):
    with pytest.raises(ValueError, match="expected a model that writes"):
        why(regard.load(checkpoint("encoder")), "the animal")
