"""`regard evaluate`: metrics that can be worked out by hand, for any run, in words and in JSON."""

import json

import pytest
from safetensors.torch import load_file, save_file

import regard
from regard.cli import main
from regard.data import Pairs
from regard.data.batch import EOS
from regard.evaluation import evaluate_translator
from regard.tasks import TASKS, TranslateTask
from regard.training import train
from regard.training.config import read_config

SMALL = {
    "task": "translate",
    "data": {"name": "copy", "count": 64, "valid_count": 5, "test_count": 7, "sentences": 32},
    "model": {"kind": "luong", "embedding": 5, "hidden": 7},
    "training": {"steps": 2},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "copy"
    config = read_config(SMALL)
    train(TranslateTask.from_config(config), config, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["output.bias"][EOS] -= 1.0  # it has learned little but to end
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_what_the_model_writes_is_right_and_anything_else_is_wrong(run, tmp_path, capsys):
    texts = ["abc", "hello", "xy", "abc"]
    written = [one.text for one in regard.load(run).translate(texts, beam=2)]
    targets = [written[0], "#" * len(written[1]), written[2], "another"]
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{s}\t{t}\n" for s, t in zip(texts, targets, strict=True)))
    assert main(["evaluate", str(run), "--data", str(file), "--beam", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sources"], found["pairs"]) == (3, 4)  # one source has two references
    assert found["metrics"]["exact"]["value"] == pytest.approx(2 / 3)
    letters = sum(len(written[n]) for n in (0, 1, 2))
    assert found["metrics"]["cer"]["value"] == pytest.approx(len(written[1]) / letters)
    (worst,) = found["worst"]
    assert (worst["source"], worst["prediction"]) == ("hello", written[1])
    assert all(edit["reference"] == "#" for edit in found["confusions"])
    assert sum(edit["count"] for edit in found["confusions"]) == len(written[1])


def test_the_test_split_of_the_run_is_the_default(run, capsys):
    assert main(["evaluate", str(run), "--beam", "1"]) == 0
    printed = capsys.readouterr()
    assert "7 pairs" in printed.out
    assert "perplexity" in printed.out
    assert "translating 7 pairs" in printed.err


def test_words_have_bleu_and_phonemes_have_two_error_rates():
    import torch

    from regard.data import train_tokenizer
    from regard.tasks import Translator
    from regard.tasks.translate import build_model

    torch.manual_seed(1)
    for kind, names in (("words", {"bleu", "chrf", "wer"}), ("phonemes", {"per", "wer"})):
        tokenizer = train_tokenizer(kind, ["a b c"])
        model = build_model({"kind": "luong", "preset": "tiny"}, tokenizer, tokenizer)
        pairs = Pairs.collect([("a b c", "a b"), ("b", "c c")])
        found = evaluate_translator(Translator(model, tokenizer, tokenizer), pairs)
        assert names <= set(found.metrics)
        assert set(found.signatures) == names & {"bleu", "chrf"}
        if kind == "phonemes":
            assert found.metrics["wer"].value == 1 - found.metrics["exact"].value


def test_a_baseline_that_gives_no_reasons_is_measured_all_the_same(tmp_path, capsys):
    run = str(tmp_path / "run")
    settings = ["model.kind=factorisation", "data.count=11", "training.epochs=1"]
    sets = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "recommend", *sets, "--out", run]) == 0
    capsys.readouterr()
    assert main(["evaluate", run]) == 0
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in rows] == ["hit", "ndcg", "test_hit", "test_ndcg"]
    assert main(["predict", run, "3"]) == 1
    assert "matrix factorisation, which gives no reasons" in capsys.readouterr().err


def test_another_task_names_its_own_metrics(tmp_path, capsys):
    config = read_config({"task": "memory", "training": {"steps": 1}})
    train(TASKS["memory"].from_config(config), config, tmp_path / "run")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert all(isinstance(value, float) for value in metrics.values())
    assert main(["evaluate", str(tmp_path / "run"), "--data", "x.tsv"]) == 2


@pytest.mark.parametrize(
    ("options", "status", "complaint"),
    [
        (["--split", "train"], 2, "test or valid"),
        (["--data", "nowhere.tsv"], 1, "nowhere.tsv"),
        (["--data", "a", "--data", "b", "--data", "c"], 2, "once, or twice"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(run, options, status, complaint, capsys):
    assert main(["evaluate", str(run), *options]) == status
    error = capsys.readouterr().err
    assert complaint in error
    assert "Traceback" not in error
