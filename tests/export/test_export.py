"""An export gives what its run gives, is complete or not there, and is refused with a reason."""

import json
import os
import shutil
from functools import partial

import pytest
import torch

import regard
from regard.decoding import batched, beam, greedy
from regard.export.ctranslate2 import (
    load_ctranslate2,
    number_of,
    token_of,
    unsupported_reason,
    write_ctranslate2,
)
from regard.export.graphs import graphs_of
from regard.export.onnx import load_onnx, write_onnx
from regard.models import LanguageModel, build
from regard.models.classifier import DocumentClassifier
from regard.models.graph import GraphAttentionNetwork
from regard.models.image import ImageClassifier
from regard.models.pair import PairClassifier
from regard.models.turing import NeuralTuringMachine
from regard.tasks.export import export

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

WORDS = {"source_vocabulary": 23, "target_vocabulary": 19}
TINY = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12}
SOURCES = [[5, 7, 11, 4, 9], [6], [], [13, 8, 21]]


def transformer(**options):
    torch.manual_seed(1)
    model = build("transformer", "tiny", **WORDS, **(TINY | options)).eval()
    with torch.no_grad():
        model.output.bias[:2] = -50.0  # tokens that searches never emit
    return model


def same(ours, theirs, *, names=None):
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.tokens == other.tokens
        assert mine.score == pytest.approx(other.score, abs=1e-4)
        for name in names or mine.maps or {}:
            own = mine.maps[name] if names is None else mine.maps[name].mean(0, keepdim=True)
            torch.testing.assert_close(own, other.maps[name], atol=1e-4, rtol=0)


@pytest.mark.parametrize("options", [{}, {"norm": "pre", "position": "learned"}])
def test_ctranslate2_searches_as_torch_does(tmp_path, options):
    model = transformer(**options)
    about = write_ctranslate2(model, tmp_path)
    loaded = load_ctranslate2(tmp_path, {**about, "dtype": "float32"})
    ours = batched(greedy, model, SOURCES, return_map=True)
    theirs = [best for (best,) in loaded.search(SOURCES, return_map=True)]
    real = [number for number, source in enumerate(SOURCES) if source]
    name = "decoder.layers.0.memory_attention"
    same([ours[n] for n in real], [theirs[n] for n in real], names=[name])
    assert theirs[2].tokens == ()
    options = {"penalty": 0.0, "return_map": True}
    found = batched(partial(beam, size=3), model, SOURCES, **options)
    searched = loaded.search(SOURCES, beam=3, **options)
    same([found[n][0] for n in real], [searched[n][0] for n in real], names=[name])


def test_tokens_of_ctranslate2_stand_for_ids():
    assert [number_of(token_of(n)) for n in range(7)] == [*range(7)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"position": "rotary"}, "positions"),
        ({"position": "alibi"}, "positions"),
        ({"kv_heads": 1}, "share keys and values"),
        ({"score": "general"}, "score"),
        ({"encoder_attention": "efficient"}, "efficient"),
    ],
)
def test_what_ctranslate2_cannot_run_is_refused_with_the_reason(options, reason):
    assert reason in unsupported_reason(transformer(**options))


def test_recurrent_models_and_frames_are_no_models_of_ctranslate2():
    assert "Seq2Seq" in unsupported_reason(build("luong", "tiny", **WORDS))
    frames = build("transformer", "tiny", frames=3, source_vocabulary=None, target_vocabulary=7)
    assert "frames" in unsupported_reason(frames)


RECURRENT = {"hidden": 6, "embedding": 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        transformer,
        partial(transformer, norm="pre", position="rotary", kv_heads=1, layers=2),  # shared
        partial(transformer, position="alibi", score="general"),
        partial(build, "luong", "tiny", **WORDS, **RECURRENT, cell="lstm", feeding=True),
        partial(build, "bahdanau", "tiny", **WORDS, **RECURRENT),
        partial(build, "plain", "tiny", **WORDS, **RECURRENT),
    ],
    ids=["transformer", "rotary", "alibi", "luong", "bahdanau", "plain"],
)
def test_onnx_searches_as_torch_does(tmp_path, make):
    torch.manual_seed(1)
    model = make().eval()
    about = write_onnx(model, tmp_path)
    loaded = load_onnx(tmp_path, json.loads(json.dumps(about))).eval()
    same(*(batched(greedy, m, SOURCES, return_map=True) for m in (model, loaded)))
    search = partial(beam, size=3, penalty=0.0)
    same(*([best for (best,) in batched(search, m, SOURCES)] for m in (model, loaded)))
    # teacher forced, one sentence of one token and a batch of others
    target = torch.randint(4, 19, (2, 5))
    source, lengths = torch.randint(4, 23, (2, 6)), torch.tensor([6, 2])
    with torch.no_grad():
        expected = model.output(model(source, lengths, target))
    torch.testing.assert_close(loaded(source, lengths, target), expected, atol=1e-4, rtol=0)


def documents():
    words = torch.randint(13, (2, 3, 7))
    return words, torch.tensor([[7, 2, 4], [5, 0, 0]]), torch.tensor([3, 1])


def pairs():
    return (
        torch.randint(13, (2, 6)),
        torch.tensor([6, 1]),
        torch.randint(7, (2, 4)),
        torch.tensor([4, 3]),
    )


def scenes():
    return *pairs()[:2], torch.randn(2, 9, 7), torch.tensor([9, 9])


def document_classifier(**options):
    model = DocumentClassifier(13, 2, dim=5, hidden=3, **options)
    for pooling in (model.attention.words, model.attention.sentences):
        torch.nn.init.normal_(pooling.query)  # as after training: they start at zero
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "inputs", "maps"),
    [
        (document_classifier, documents, True),
        (partial(document_classifier, encoder="none", presence=True, scale=3.0), documents, True),
        (
            partial(PairClassifier, 2, left_vocabulary=13, right_vocabulary=7, dim=6, heads=2),
            pairs,
            1,
        ),
        (
            partial(PairClassifier, 2, left_vocabulary=13, right_cells=7, dim=6, heads=2),
            scenes,
            1,
        ),
        (
            partial(ImageClassifier, (4, 6), 3, patch=2, dim=6, heads=2, layers=1, attention="dot"),
            lambda: (torch.rand(2, 4, 6),),
            False,
        ),
    ],
    ids=["documents", "presence", "pairs", "scenes", "images"],
)
def test_onnx_classifies_as_torch_does(tmp_path, make, inputs, maps):
    torch.manual_seed(1)
    model, given = make().eval(), inputs()
    loaded = load_onnx(tmp_path, write_onnx(model, tmp_path))
    for size in (len(given[0]), 1):
        part = [tensor[:size] for tensor in given]
        with torch.no_grad():
            expected = model(*part)
        found = loaded(*part)
        torch.testing.assert_close(found[0], expected[0], atol=1e-4, rtol=0)
        if maps:
            names = ("word_map", "sentence_map") if maps is True else ("left_map", "right_map")
            own = expected if maps is True else expected[1]
            for name in names:
                torch.testing.assert_close(
                    getattr(found, name).dense(), getattr(own, name).dense(), atol=1e-4, rtol=0
                )


def test_efficient_attention_is_no_model_of_onnx(tmp_path):
    with pytest.raises(ValueError, match="no operator for efficient attention"):
        write_onnx(ImageClassifier((4, 6), 3, attention="efficient"), tmp_path)


@pytest.mark.slow
def test_onnx_continues_texts_as_torch_does(tmp_path):
    torch.manual_seed(1)
    model = LanguageModel(13, dim=12, heads=3, hidden=24, layers=1, position="rotary").eval()
    loaded = load_onnx(tmp_path, write_onnx(model, tmp_path))
    ids = torch.randint(13, (2, 9))
    with torch.no_grad():
        expected = model.output(model(ids))
    torch.testing.assert_close(loaded(ids), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "model",
    [
        NeuralTuringMachine(3, 5, hidden=7, slots=11, width=2),
        GraphAttentionNetwork(5, 3, hidden=2, heads=2),
    ],
)
def test_other_models_are_refused_with_those_that_can_be_exported(model):
    with pytest.raises(ValueError, match=r"cannot be exported: expected .*Transformer"):
        graphs_of(model)


def test_local_attention_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="window of a step"):
        graphs_of(build("luong", "tiny", **WORDS, attention="local", window=2))


# ------------------------------------------------------------------------------ directories


def test_an_export_is_loaded_like_a_run(transformer_run, exported):
    ours, theirs = regard.load(transformer_run), regard.load(exported)
    texts = ours.examples(5)
    for a, b in zip(ours.translate(texts, beam=1), theirs.translate(texts, beam=1), strict=True):
        assert a.text == b.text
    assert "ctranslate2.Translator" in (exported / "README.md").read_text()


def test_predict_and_evaluate_take_an_export(transformer_run, exported, capsys):
    from regard.cli import main

    found = []
    for folder in (transformer_run, exported):
        assert main(["predict", str(folder), "--beam", "1", "--text", "march 3rd, 2031"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    assert main(["evaluate", str(exported), "--json", "--split", "valid"]) == 0
    assert "exact" in json.loads(capsys.readouterr().out)["metrics"]
    assert main(["predict", str(exported), "--sample", "--text", "a"]) == 1
    assert "sample with the run itself" in capsys.readouterr().err


def test_the_code_of_the_readme_runs(exported, monkeypatch, capsys):
    monkeypatch.chdir(exported)
    monkeypatch.syspath_prepend(exported)
    for block in (exported / "README.md").read_text().split("```python\n")[1:]:
        exec(block.partition("```")[0], {})
    assert capsys.readouterr().out


def test_int8_is_compared_by_bleu(transformer_run, tmp_path, monkeypatch):
    import regard.tasks.export

    monkeypatch.setattr(regard.tasks.export, "PAIRS", 20)
    folder = export(transformer_run, "ctranslate2", tmp_path / "int8", dtype="int8")
    assert regard.load(folder).translate(["march 3rd, 2031"])[0].text
    monkeypatch.setattr(regard.tasks.export, "BLEU", -101.0)
    with pytest.raises(ValueError, match="export it in float32"):
        export(transformer_run, "ctranslate2", tmp_path / "worse", dtype="int8")
    assert os.listdir(tmp_path) == ["int8"]


def test_an_export_that_differs_is_refused_and_leaves_nothing(
    transformer_run, tmp_path, monkeypatch
):
    import regard.tasks.export

    def wrong(model, folder, **options):
        with torch.no_grad():
            model.output.bias += torch.linspace(-3, 3, len(model.output.bias))
        try:
            return write_ctranslate2(model, folder, **options)
        finally:
            with torch.no_grad():
                model.output.bias -= torch.linspace(-3, 3, len(model.output.bias))

    monkeypatch.setitem(regard.tasks.export.TARGETS, "ctranslate2", wrong)
    with pytest.raises(ValueError, match="differs from the run"):
        export(transformer_run, "ctranslate2", tmp_path / "wrong")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onx"], "did you mean 'onnx'"),
        (["--to", "onnx", "--dtype", "int8"], "is for --to ctranslate2"),
        (["--to", "ctranslate2", "--dtype", "int4"], "unknown type"),
    ],
)
def test_wrong_options_are_errors_of_one_sentence(transformer_run, arguments, message, capsys):
    from regard.cli import main

    assert main(["export", str(transformer_run), *arguments]) == 1
    assert message in capsys.readouterr().err


def test_an_export_is_not_exported_again_or_overwritten(transformer_run, exported):
    with pytest.raises(ValueError, match="export already"):
        export(exported, "onnx")
    with pytest.raises(FileExistsError, match="choose another --out"):
        export(transformer_run, "ctranslate2", exported)


def test_an_export_for_an_unknown_runtime_is_not_loaded(transformer_run, exported, tmp_path):
    folder = tmp_path / "unknown"
    shutil.copytree(exported, folder)
    from regard.export import read_export, seal

    seal(transformer_run, folder, {**read_export(folder), "target": "torch"})
    with pytest.raises(ValueError, match="unknown target 'torch'"):
        regard.load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["translate", "classify", "pair"])
def test_an_onnx_export_is_loaded_like_a_run(tiny_run, task, tmp_path, capsys):
    from regard.cli import main

    folder = export(tiny_run(task), "onnx", tmp_path / "exported")
    ours, theirs = regard.load(tiny_run(task)), regard.load(folder)
    inputs = ours.examples(3)
    pairs = zip(ours.predict(inputs), theirs.predict(inputs), strict=True)
    assert all(ours.to_text(a) == theirs.to_text(b) for a, b in pairs)
    assert main(["evaluate", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert main(["evaluate", str(tiny_run(task)), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)["metrics"]
    if task == "classify":
        values = [{name: one["value"] for name, one in each.items()} for each in (found, expected)]
        assert values[0] == pytest.approx(values[1], abs=1e-3)
    assert found.keys() == expected.keys()


def test_scores_are_compared_relatively_and_probabilities_absolutely():
    from regard.tasks.export import _check

    _check({"score": -6.06215}, {"score": -6.06205}, "example 2")  # a sum of log probabilities
    for expected, found in ((-6.0, -6.001), (0.5, 0.5002), (float("nan"), 0.5)):
        with pytest.raises(ValueError, match="differs from the run"):
            _check(expected, found, "example 2")
