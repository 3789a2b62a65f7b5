"""`regard evaluate`: metrics that can be worked out by hand, for any run, in words and in JSON."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.cli import main
from regard.data import Pairs
from regard.data.batch import EOS
from regard.evaluation import evaluate_translator
from regard.tasks import TASKS, TranslateTask
from regard.training import read_run_config, train
from regard.training.config import read_config


@pytest.fixture(scope="module")
def run(copy_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "copy"
    shutil.copytree(copy_run, folder)
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


def test_samples_are_measured_by_the_one_that_the_others_agree_with(run, tmp_path, capsys):
    (written,) = regard.load(run).translate(["hello"], mbr=5)
    file = tmp_path / "pairs.tsv"
    file.write_text(f"hello\t{written.text}\n")
    assert main(["evaluate", str(run), "--data", str(file), "--mbr", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mbr"] == 5
    assert found["metrics"]["exact"]["value"] == 1.0


def test_the_test_split_of_the_run_is_the_default(run, capsys):
    assert main(["evaluate", str(run), "--beam", "1"]) == 0
    printed = capsys.readouterr()
    assert "7 pairs" in printed.out
    assert "perplexity" in printed.out
    assert "translating 7 pairs" in printed.err


def test_words_have_bleu_and_phonemes_have_two_error_rates():
    from regard.data import train_tokenizer
    from regard.tasks import Translator
    from regard.tasks.variants import build_model

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
    assert "memory is evaluated on its own data alone" in capsys.readouterr().err


def evaluated(run, *options, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(run), *map(str, options), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["metrics"]


@pytest.mark.parametrize("task", ["classify", "pair"])
def test_classes_of_another_file_are_compared_with_the_predictions(task, tmp_path, capsys):
    """Of a file whose labels are the predictions, but one, in columns with names of the run."""
    names = {"classify": ["text"], "pair": ["left", "right"]}[task]
    texts = [f"word{n % 5} other{n % 3}" for n in range(13)]
    rows = [
        {**{f"my_{name}": text for name in names}, "my_label": "ab"[n % 2]}
        for n, text in enumerate(texts)
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = [f"data.path={file}", *(f"data.{name}=my_{name}" for name in (*names, "label"))]
    config = read_config({"task": task, "training": {"steps": 1}}, [*settings, "model.dim=4"])
    train(TASKS[task].from_config(config), config, tmp_path / "run")
    model = regard.load(tmp_path / "run")
    inputs = texts if task == "classify" else [(text, text) for text in texts]
    found = model.predict(inputs)
    for row, one in zip(rows, found, strict=True):
        row["my_label"] = one.label
    rows[0]["my_label"] = "b" if found[0].label == "a" else "a"
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = evaluated(tmp_path / "run", "--data", other, capsys=capsys)
    assert metrics["accuracy"]["value"] == pytest.approx(12 / 13)
    shares = [one.probabilities[row["my_label"]] for one, row in zip(found, rows, strict=True)]
    assert metrics["loss"]["value"] == pytest.approx(-sum(map(math.log, shares)) / 13, rel=1e-4)
    table = tmp_path / "table.csv"  # other columns and another format
    lines = [[*(row[f"my_{name}"] for name in names), row["my_label"]] for row in rows]
    header = ",".join([*names, "label"])
    table.write_text("\n".join([header, *map(",".join, lines)]))
    sets = [part for name in (*names, "label") for part in ("--set", f"data.{name}={name}")]
    assert evaluated(tmp_path / "run", "--data", table, *sets, capsys=capsys) == metrics
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(table)]) == 1
    assert f"choose with data.{names[0]}=" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run"), "--set", "data.label=x"]) == 2


@pytest.mark.parametrize("task", ["classify", "pair", "image", "graph"])
def test_classes_are_reported_with_intervals_matrix_and_worst_cases(task, tmp_path, capsys):
    tiny = {"classify": {"dim": 8}, "pair": {"dim": 8}, "image": {"dim": 8}, "graph": {}}[task]
    count = {"classify": 80, "pair": 40, "image": 100, "graph": 100}[task]
    data = {"name": "generated"} if task == "graph" else {}
    training = {"steps": 2, "evaluate_every": 2}
    config = read_config(
        {"task": task, "data": {**data, "count": count}, "model": tiny, "training": training}
    )
    metrics = train(TASKS[task].from_config(config), config, tmp_path / "run").metrics
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json", "--shown", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["metrics"]["accuracy"]["value"] == pytest.approx(metrics["test_accuracy"])
    assert sum(map(sum, report["confusion"])) == report["examples"]
    assert [sum(row) for row in report["confusion"]] == [
        scores["examples"] for scores in report["classes"].values()
    ]
    assert len(report["worst"]) <= 2
    assert main(["evaluate", str(tmp_path / "run"), "--split", "valid"]) == 0
    shown = capsys.readouterr().out
    accuracy = metrics["accuracy"]
    assert f"accuracy  {100 * accuracy:>8.2f} %" in shown
    assert "confusion matrix" in shown
    assert main(["evaluate", str(tmp_path / "run"), "--beam", "3"]) == 2
    assert f"--beam is not an option of the task {task}" in capsys.readouterr().err


def test_a_language_model_is_evaluated_on_another_text(tmp_path, capsys):
    """Against the mean surprise of one pass over a text that fits into the context."""
    settings = ["data.context=32", "data.count=80", "model.dim=12", "model.heads=2"]
    config = read_config({"task": "language", "training": {"steps": 1}}, settings)
    train(TASKS["language"].from_config(config), config, tmp_path / "run")
    text = "27 May 1994 = 1994"
    (tmp_path / "other.txt").write_text(text)
    metrics = evaluated(tmp_path / "run", "--data", tmp_path / "other.txt", capsys=capsys)
    model = regard.load(tmp_path / "run")
    ids = torch.tensor([model.tokenizer.encode(text + "\n")])
    with torch.no_grad():
        shares = model.model.output(model.model(ids[:, :-1])).double().log_softmax(-1)
    nats = -shares.gather(-1, ids[:, 1:, None]).mean()
    assert metrics["nats_per_token"] == pytest.approx(float(nats), rel=1e-5)
    (tmp_path / "other.jsonl").write_text(json.dumps({"text": text}))
    again = evaluated(tmp_path / "run", "--data", tmp_path / "other.jsonl", capsys=capsys)
    assert again == metrics


def test_pairs_of_another_file_have_the_columns_of_the_run(run, tmp_path, capsys):
    rows = [{"en": f"word {n}", "de": f"Wort {n}"} for n in range(60)]
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = [f"data.train={file}", "data.source=en", "data.target=de"]
    small = {**read_run_config(run).model_dump(exclude_none=True), "data": {"sentences": 32}}
    config = read_config(small, settings)
    train(TranslateTask.from_config(config), config, tmp_path / "run")
    metrics = evaluated(tmp_path / "run", "--data", file, "--beam", 1, capsys=capsys)
    assert metrics["exact"]["value"] == 0
    assert regard.load(tmp_path / "run").evaluate(file)["exact"] == 0


@pytest.mark.parametrize(
    ("options", "status", "complaint"),
    [
        (["--split", "train"], 2, "test or valid"),
        (["--data", "nowhere.tsv"], 1, "nowhere.tsv"),
        (["--mbr", "5", "--penalty", "1"], 2, "are for searching, not for samples"),
        (["--temperature", "1"], 2, "are for samples: add --sample or --mbr"),
        (["--mbr", "5", "--temperature", "0"], 2, "temperature should be greater than 0"),
        (["--data", "a", "--data", "b", "--data", "c"], 2, "once, or twice"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(run, options, status, complaint, capsys):
    assert main(["evaluate", str(run), *options]) == status
    error = capsys.readouterr().err
    assert complaint in error
    assert "Traceback" not in error
