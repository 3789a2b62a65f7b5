"""`regard see`: terminal, figure and page of a run and of a stored trace; clear refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.cli import main
from regard.core.map import AttentionMap
from regard.data import train_tokenizer
from regard.tasks.translator import SOURCE, TARGET
from regard.tasks.variants import build_model
from regard.trace import Trace
from regard.trace.call import Call


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of an untrained model, which attends all the same."""
    return untrained(tmp_path, "luong")


def untrained(tmp_path: Path, kind: str) -> Path:
    from safetensors.torch import save_file

    folder = tmp_path / "run"
    folder.mkdir()
    letters = train_tokenizer("characters", ["abcdefg"])
    for name in (SOURCE, TARGET):
        letters.save(folder / name)
    torch.manual_seed(0)
    model = build_model({"kind": kind, "preset": "tiny"}, letters, letters)
    save_file(dict(model.state_dict()), folder / "model.safetensors")
    (folder / "config.toml").write_text(
        f'task = "translate"\n[model]\nkind = "{kind}"\npreset = "tiny"\n[training]\nsteps = 7\n'
    )
    return folder


def test_a_run_is_seen_in_the_terminal(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["see", str(run), "cabbage", "--beam", "1"]) == 0
    out = capsys.readouterr().out
    assert "decoder.attention" in out
    assert "c  a  b  b  a  g  e" in out


@pytest.mark.parametrize("option", [[], ["--out", "a.png"], ["--out", "a.html"]])
def test_a_model_without_attention_has_nothing_to_see(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    run = untrained(tmp_path, "plain")
    assert main(["see", str(run), "cabbage", *option]) == 1
    assert "this plain model has no attention" in capsys.readouterr().err


def test_figures_and_a_page_are_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "new" / name for name in ("a.png", "a.svg", "a.html")]
    options = [part for file in files for part in ("--out", str(file))]
    assert main(["see", str(run), "bead", *options, "--lang", "ko"]) == 0
    assert capsys.readouterr().out.split() == [str(file) for file in files]
    assert '"language":"ko"' in files[2].read_text(encoding="utf-8")


def test_a_stored_trace_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.attn"
    Trace.of_maps({"cross": torch.eye(2)}, queries=["le", "chat"], keys=["the", "cat"]).save(file)
    assert main(["see", str(file)]) == 0
    assert "chat" in capsys.readouterr().out
    assert main(["see", str(file), "--out", str(tmp_path / "a.html")]) == 0
    assert main(["see", str(file), "text"]) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        ([], 2, "the run has no test data: give INPUT"),
        ([""], 1, "empty text"),
        (["a", "b"], 1, "should be one input, got 2"),
        (["a", "--out", "a.jpg"], 2, "should be one of .png, .svg, .html, .attn"),
        (["a", "--checkpoints"], 2, "--checkpoints needs --out FILE.html"),
        (["a", "--lang", "ko"], 2, "--lang needs --out FILE.html"),
        (["a", "--count", "3"], 2, "--count is not an option of the task translate"),
        (["a", "--example", "3"], 2, "give INPUT or --example, not both"),
        (["a", "--attention", "x"], 1, "no call is named like"),
        (["a", "--layer", "2"], 1, "--layer should be from 0 to 0, got 2"),
        (["a", "--head", "2"], 1, "--head should be from 0 to 0, got 2"),
        (["a", "--out", "a.html", "--lang", "fr"], 2, "--lang should be en or ko, got fr"),
        (["a", "--out", "a.html", "--checkpoints"], 1, "no checkpoints in"),
    ],
)
def test_bad_usage_is_one_sentence(
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    status: int,
    complaint: str,
) -> None:
    monkeypatch.chdir(run)
    assert main(["see", str(run), *arguments]) == status
    assert complaint in capsys.readouterr().err
    assert not (run / "a.html").exists()


def test_a_trace_that_is_not_there_is_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["see", str(tmp_path / "none.attn")]) == 1
    assert "is neither a run directory, a checkpoint nor a trace file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["see", "translate"])
def test_a_misspelt_run_is_answered_with_the_nearest(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dates").mkdir()
    (tmp_path / "dates" / "config.toml").touch()
    assert main([command, str(tmp_path / "date"), "May 1"]) == 1
    assert f"did you mean {tmp_path / 'dates'}?" in capsys.readouterr().err


SMALL = {
    "graph": ["data.name=generated", "data.count=60"],
    "memory": ["data.longest=3", "data.batches=2", "data.held_out=2", "model.slots=7"],
    "image": ["data.count=20", "model.dim=8", "model.layers=1", "model.heads=2"],
    "hard": ["data.count=30", "data.held_out=5"],
    "classify": ["data.count=40"],
    "language": ["data.count=60", "data.context=16", "model.dim=8", "model.hidden=8"],
}
SHOWN = {
    "graph": ("document 7", "document 7: topic"),
    "memory": ("5", "copy, size 5: "),
    "image": ("3", "%"),
    "hard": ("3 1* 4′", "] "),
    "classify": ("나는 좋다", "나는 좋다"),
    "language": ("27 May", "decoder.layers.0.attention"),
}


@pytest.fixture(scope="module", params=SMALL)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A run of each task that does not translate, hardly trained."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = [*SMALL[request.param], "training.epochs=1", "training.threads=1"]
    sets = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", request.param, *sets, "--out", str(folder / "run")]) == 0
    return request.param, folder / "run"


def test_a_run_of_another_task_is_seen_and_drawn(
    other, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, run = other
    what, expected = SHOWN[task]
    assert main(["see", str(run), what]) == 0
    assert expected in capsys.readouterr().out
    assert main(["see", str(run), "--example", "2"]) == 0
    files = [tmp_path / "new" / f"a{suffix}" for suffix in (".png", ".html", ".attn")]
    options = [part for file in files for part in ("--out", str(file))]
    assert main(["see", str(run), *options]) == 0
    assert all(file.stat().st_size > 500 for file in files)
    capsys.readouterr()
    assert main(["see", str(run), what, *options]) == 0
    assert capsys.readouterr().out.split() == [str(file) for file in files]
    assert main(["see", str(files[2])]) == 0
    assert expected in capsys.readouterr().out
    assert main(["see", str(run), what, "--out", str(files[1]), "--checkpoints"]) == 2
    assert main(["see", str(run), what, "--beam", "3"]) == 2
    capsys.readouterr()
    assert main(["see", str(run), ""]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_every_option_of_predict_is_taken_or_refused_by_a_task(other, capsys) -> None:
    task, run = other
    what, _ = SHOWN[task]
    for option in ("--beam", "--n-best", "--penalty", "--length", "--count", "--longest"):
        taken = (task, option) == ("language", "--length")
        assert main(["predict", str(run), what, option, "1"]) == (0 if taken else 2)
        error = capsys.readouterr().err
        assert taken or f"{option} is not an option of the task {task}" in error


def test_every_example_of_a_stored_trace_is_seen(tmp_path: Path, capsys) -> None:
    file = tmp_path / "two.attn"
    tokens = {"source": [["the", "cat"], ["a", "dog"]], "target": [["le", "chat"], ["un", "chien"]]}
    maps = AttentionMap.of(torch.eye(2).expand(2, 1, 2, 2).contiguous())
    Trace([Call("cross", maps, "target", "source")], tokens).save(file)
    for number, word in ((1, "chat"), (2, "chien")):
        assert main(["see", str(file), "--example", str(number)]) == 0
        assert word in capsys.readouterr().out
    assert main(["see", str(file), "--example", "3"]) == 1
    assert "--example should be from 1 to 2, got 3" in capsys.readouterr().err


# ------------------------------------------------------------------------------ checkpoints

SENTENCE = "the animal was tired because the animal"


@pytest.mark.parametrize("kind", ["encoder", "causal", "encoder_decoder"])
def test_a_checkpoint_is_seen_in_every_form(
    kind: str, checkpoint: Callable[[str], Path], tmp_path: Path, capsys: Any
) -> None:
    model, files = (
        str(checkpoint(kind)),
        [tmp_path / f"a{end}" for end in (".png", ".html", ".attn")],
    )
    more = [] if kind == "encoder" else ["--generate", "3"]
    outs = [part for file in files for part in ("--out", str(file))]
    assert main(["see", model, SENTENCE, *more, *outs]) == 0
    assert all(file.stat().st_size > 1000 for file in files)
    stored = regard.load_trace(files[2])
    assert len(stored.about.get("written", [])) == (0 if kind == "encoder" else 3)
    capsys.readouterr()
    assert main(["see", model, SENTENCE, *more, "--layer", "1", "--head", "2"]) == 0
    assert (
        "animal" in capsys.readouterr().out.replace("\n", "").replace(" ", "") or kind != "encoder"
    )
    assert main(["see", model, SENTENCE, *more, "--summary"]) == 0
    out = capsys.readouterr().out
    patterns = ("previous token", "same token", "first token", "induction", "widest", "sharpest")
    assert [out.count(f"\n{pattern}") for pattern in patterns] == [3] * 6


def test_an_image_file_is_seen(
    checkpoint: Callable[[str], Path], tmp_path: Path, capsys: Any
) -> None:
    from PIL import Image

    Image.linear_gradient("L").save(tmp_path / "a.png")
    assert main(["see", str(checkpoint("image")), str(tmp_path / "a.png"), "--layer", "0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(("good (", "bad ("))
    assert "1,1" in out


def test_words_are_joined_and_special_tokens_are_greyed(
    checkpoint: Callable[[str], Path], tmp_path: Path, capsys: Any
) -> None:
    model = str(checkpoint("encoder_decoder"))
    files = [str(tmp_path / name) for name in ("a.attn", "b.attn", "a.html")]
    assert main(["see", model, SENTENCE, "--out", files[0], "--out", files[2]]) == 0
    assert main(["see", model, SENTENCE, "--words", "--out", files[1]]) == 0
    pieces, words = (regard.load_trace(file).tokens["source"] for file in files[:2])
    assert words == [*SENTENCE.split(), "</s>"]
    assert len(pieces) > len(words)
    assert f'"special":[[{len(pieces) - 1}]' in Path(files[2]).read_text().replace(" ", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "text"], "--hub downloads"),
        (["{encoder}", "text", "--generate", "2"], "does not write"),
        (["{encoder}", "text", "--beam", "2"], "--beam is not an option of the task pretrained"),
        (["{encoder}"], "give INPUT"),
        (["{encoder}", "text", "--summary", "--out", "a.png"], "without --out"),
        (["{image}", "text"], "No such file"),
    ],
)
def test_what_a_checkpoint_does_not_take_is_said(
    arguments: list[str], message: str, checkpoint: Callable[[str], Path], capsys: Any
) -> None:
    names = {f"{{{kind}}}": str(checkpoint(kind)) for kind in ("encoder", "image")}
    assert main(["see", *(names.get(each, each) for each in arguments)]) in (1, 2)
    assert message in capsys.readouterr().err
