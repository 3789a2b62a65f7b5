"""`regard compare`: its runs, output and files, on a task of a few steps."""

import json

import pytest

import regard
from regard.cli import main
from regard.layers import EfficientAttention
from tests.cli.interrupt import interrupted_once

SMALL = (
    *("--set", "data.count=70", "--set", "data.valid_count=11", "--set", "data.sentences=7"),
    *("--set", "model.embedding=5", "--set", "model.hidden=7", "--set", "model.preset="),
    *("--set", "training.epochs=", "--set", "training.steps=6", "--set", "training.log_every=1"),
    *("--set", "training.evaluate_every=2", "--set", "data.metric=accuracy"),
)


def compare(*arguments):
    named = arguments[:1] and not arguments[0].startswith("-")
    recipe, *rest = arguments if named else ("copy", *arguments)
    return main(["compare", recipe, "--out", "here", *SMALL, *rest])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of one's own to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_variants_become_a_table_a_chart_and_a_file(here, capsys):
    assert compare("--decoders", "plain,luong", "--json", "new/found.json") == 0
    shown = capsys.readouterr()
    head, *rows, about = shown.out.splitlines()
    assert " ".join(head.split()) == "quality time to it time parameters tokens/s entropy"
    assert {row.split()[0] for row in rows} == {"plain", "luong-general"}
    assert about.startswith("quality: accuracy")
    assert "plain (1 of 2)" in shown.err
    assert (here / "here" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((here / "new" / "found.json").read_text())
    by_name = {row["name"]: row for row in found["rows"]}
    assert by_name["plain"]["entropy"] is None
    assert 0 < by_name["luong-general"]["entropy"] < 2.5  # ln 12, of the longest source
    assert by_name["luong-general"]["parameters"] > by_name["plain"]["parameters"]
    for row in found["rows"]:
        assert len(row["curve"]) == 3
        assert row["quality"] == max(quality for _, quality in row["curve"])
        assert row["tokens_per_second"] > 0
        reached = [seconds for seconds, quality in row["curve"] if quality >= found["target"]]
        assert row["seconds_to_quality"] == (reached[0] if reached else None)
    qualities = [row["quality"] for row in found["rows"]]
    assert qualities == sorted(qualities, reverse=True)


def test_what_is_there_is_not_trained_again(here, capsys):
    assert compare("--decoders", "plain") == 0
    first = capsys.readouterr().out
    before = (here / "here" / "plain" / "metrics.jsonl").read_text()
    assert compare("--decoders", "plain") == 0
    assert capsys.readouterr().out == first
    assert (here / "here" / "plain" / "metrics.jsonl").read_text() == before
    assert compare("--decoders", "plain", "--set", "training.lr=0.25") == 1
    assert "here/plain was trained with training.lr" in capsys.readouterr().err


def test_every_decoder_and_normalizer_is_trained(here, capsys):
    short = ("--set", "training.steps=1", "--set", "training.evaluate_every=1")
    every = ("--decoders", "plain,peeky,luong,bahdanau,gnmt,transformer", "--scores", "dot")
    assert compare(*every, *short) == 0
    assert entropies(here).keys() == {
        *("plain", "peeky", "luong-dot", "bahdanau-dot", "gnmt-dot", "transformer")
    }
    assert {n for n, value in entropies(here).items() if value is None} == {"plain", "peeky"}
    more = ("--decoders", "bahdanau,transformer", "--encoders", "efficient", "--scores", "dot")
    normalizers = ("--normalizers", "softmax,sparsemax,entmax15,hard,gumbel")
    assert compare(*more, *normalizers, *short) == 0
    found = entropies(here)
    assert found["bahdanau-dot-hard"] == found["bahdanau-dot-gumbel"] == 0 < found["bahdanau-dot"]
    assert min(found["bahdanau-dot-sparsemax"], found["bahdanau-dot-entmax15"]) > 0
    assert found["transformer-efficient"] > 0
    run = here / "here" / "transformer-efficient"
    assert 'encoder_attention = "efficient"' in (run / "config.toml").read_text()
    assert isinstance(regard.load(run).model.encoder.layers[0].attention, EfficientAttention)


def entropies(here):
    """The entropy of each variant's map."""
    rows = json.loads((here / "here" / "comparison.json").read_text())["rows"]
    return {row["name"]: row["entropy"] for row in rows}


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(here, capsys):
    longer = ("--set", "training.steps=120", "--set", "training.evaluate_every=20")
    with interrupted_once(here, "here/peeky/checkpoints/step-*"):
        assert compare("--decoders", "plain,peeky", *longer) == 130
    shown = capsys.readouterr()
    message = "regard: stopped in peeky, which is saved; the same command continues it"
    assert shown.err.splitlines()[-1] == message
    assert shown.out == ""
    before = (here / "here" / "plain" / "metrics.jsonl").read_text()
    assert '"finished": "steps"' in before
    assert compare("--decoders", "plain,peeky", *longer) == 0
    shown = capsys.readouterr()
    assert "resuming after step" in shown.err
    assert (here / "here" / "plain" / "metrics.jsonl").read_text() == before
    lines = (here / "here" / "peeky" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if '"loss"' in line]
    assert steps == sorted(set(steps))
    assert steps[-1] == 120


def test_models_that_all_diverge_are_a_table_and_a_failure(here, capsys):
    arguments = ("--decoders", "plain,luong", "--set", "training.lr=1e38")
    for _ in range(2):  # the second time it goes on from nothing
        assert compare(*arguments) == 1
        shown = capsys.readouterr()
        assert [row.split()[1] for row in shown.out.splitlines()[1:-1]] == ["diverged"] * 2
        assert "plain diverged: the " in shown.err
        assert shown.err.splitlines()[-1].startswith("regard: all models diverged")
        rows = json.loads((here / "here" / "comparison.json").read_text())["rows"]
        assert all(row["quality"] is None and "step" in row["diverged"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("--decoders", "luon"), 2, "did you mean 'luong'"),
        (("--scores", "aditive"), 2, "did you mean 'additive'"),
        (("--normalizers", "sofmax"), 2, "did you mean 'softmax'"),
        (("--encoders", "eficient"), 2, "did you mean 'efficient'"),
        (("cpy",), 2, "did you mean 'copy'"),
        (("--decoders", ","), 2, "at least one"),
        (("--set", "model.hiden=7"), 1, "did you mean 'hidden'"),
        (("graph", "--set", "data.metric="), 1, "compare needs the task translate, got 'graph'"),
    ],
)
def test_a_wrong_name_is_one_sentence_and_trains_nothing(
    here, capsys, arguments, status, complaint
):
    assert compare(*arguments) == status
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert complaint in line
    assert shown.out == ""
    assert not (here / "here").exists()


def test_two_models_on_one_text(checkpoint, tmp_path, capsys) -> None:
    models = [str(checkpoint("causal", seed)) for seed in (1, 2)]
    page = tmp_path / "both.html"
    given = ["--generate", "3", "--out", str(page)]
    assert main(["compare", *models, "the animal was tired", *given]) == 0
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["attention", "head", "distance"]
    distances = [float(row.split()[2]) for row in rows]
    assert len(rows) == 6
    assert distances == sorted(distances, reverse=True)
    assert 0.05 < distances[0] <= 1
    assert last == str(page)
    assert page.stat().st_size > 100_000
    assert main(["compare", models[0], models[0], "the animal was tired"]) == 0
    assert {row.split()[2] for row in capsys.readouterr().out.splitlines()[1:]} == {"0.000"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{causal}", "{bytes}", "the street"], "do not have the same attention"),
        (["{causal}", "{causal}"], "MODEL OTHER TEXT"),
        (["{causal}", "{causal}", "text", "--out", "a.png"], "should be FILE.html"),
        (["{encoder}", "{encoder}", "text", "--generate", "2"], "does not write"),
    ],
)
def test_models_that_cannot_be_compared(arguments, message, checkpoint, capsys) -> None:
    names = {f"{{{kind}}}": str(checkpoint(kind)) for kind in ("causal", "bytes", "encoder")}
    assert main(["compare", *(names.get(each, each) for each in arguments)]) in (1, 2)
    assert message in capsys.readouterr().err
