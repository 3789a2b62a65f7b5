"""Checkpoints of Hugging Face open as runs do: what they say, attend to, and refuse."""

import json
import shutil
import socket
from pathlib import Path

import pytest
import torch

import regard
from regard.tasks import PretrainedPredictor, Translator, load_pretrained
from tests.checkpoints import KINDS

TEXT = "the animal was tired 동물이 길을"


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    path = tmp_path_factory.mktemp("pictures") / "red.png"
    Image.linear_gradient("L").resize((20, 30)).convert("RGB").save(path)
    return path


def eager_maps(predictor: PretrainedPredictor, input: str, trace: regard.trace.Trace) -> list:
    """The maps that transformers returns for an input and what was written, in eager mode."""
    predictor.model.set_attn_implementation("eager")
    inputs = predictor.encode(input)
    written = trace.about.get("written", [])
    if predictor.kind == "causal":
        inputs = {"input_ids": torch.tensor([inputs["input_ids"][0].tolist() + written])}
    elif predictor.kind == "encoder_decoder":
        inputs["decoder_input_ids"] = torch.tensor([[0, *written[:-1]]])
    with torch.no_grad():
        output = predictor.model(**inputs, output_attentions=True)
    if predictor.kind != "encoder_decoder":
        return list(output.attentions)
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(map for pair in pairs for map in pair)]


@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_those_of_eager_and_every_row_and_column_has_a_token(kind, checkpoint, picture):
    predictor = regard.load(checkpoint(kind))
    input = str(picture) if kind == "image" else TEXT
    options = {"generate": 5} if predictor.writes else {}
    trace = predictor.trace(input, **options)
    expected = eager_maps(predictor, input, trace)
    assert len(trace) == len(expected) > 0
    assert trace.missed == []
    for call, map in zip(trace, expected, strict=True):
        torch.testing.assert_close(call.map.dense(), map[0], atol=2e-6, rtol=1e-5)
        assert [len(trace.tokens[side]) for side in (call.queries, call.keys)] == [*call.shape[1:]]
    if predictor.writes:
        assert len(trace.about["written"]) == 5
        assert trace.about["written"] == predictor.predict([input], length=5)[0].ids


@pytest.mark.parametrize("kind", ["causal", "bytes", "encoder_decoder"])
def test_written_tokens_are_the_likeliest_and_their_scores_are_those_of_the_model(kind, checkpoint):
    predictor = regard.load(checkpoint(kind))
    trace = predictor.trace(TEXT, generate=4)
    side = "target" if kind == "encoder_decoder" else "source"
    first = 0 if side == "target" else trace.about["prompt"] - 1
    rows = trace.about["outputs"][side][first : first + 4]
    assert [row[0][2] for row in rows] == trace.about["written"]
    scores = trace.about["log_probabilities"][side][-4:]
    shares = [row[0][1] for row in rows]
    torch.testing.assert_close(torch.tensor(scores).exp(), torch.tensor(shares), atol=1e-4, rtol=0)


def test_tokens_are_readable_and_special_ones_are_marked(checkpoint):
    pieces = regard.load(checkpoint("bytes"))
    tokens = pieces.trace(TEXT).tokens["source"]
    assert "".join(tokens).replace("‥", "").replace("▁", " ") == TEXT
    words = regard.load(checkpoint("encoder")).trace("the animal")
    assert words.tokens["source"] == ["[CLS]", "the", "animal", "[SEP]"]
    assert words.about["special"]["source"] == [True, False, False, True]
    joined = regard.analysis.by_words(regard.load(checkpoint("encoder_decoder")).trace(TEXT))
    assert joined.tokens["source"] == [*TEXT.split(), "</s>"]


def test_classes_come_with_probabilities_and_an_encoder_says_nothing(checkpoint, picture):
    for kind, input in (("classifier", TEXT), ("image", str(picture))):
        predictor = regard.load(checkpoint(kind))
        (answer,) = predictor.predict([input])
        assert set(answer.probabilities) == {"good", "bad"}
        assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-4)
        assert predictor.to_text(answer) == predictor.trace(input).about["title"]
    assert regard.load(checkpoint("encoder")).predict([TEXT])[0].text == ""


def broken(folder: Path, how: str) -> None:
    """Damage a checkpoint."""
    config = json.loads((folder / "config.json").read_text())
    if how == "pickle":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif how == "shard":
        (folder / "model.safetensors").unlink()
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    elif how == "index":
        (folder / "model.safetensors").rename(folder / "model.safetensors.index.json")
        (folder / "model.safetensors.index.json").write_text("[1]")
    elif how == "weights":
        (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0garbage")
    elif how == "tokenizer":
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()
    elif how == "tokenizer text":
        (folder / "tokenizer.json").write_text("{}")
    elif how == "own code":
        config |= {"model_type": "strange", "auto_map": {"AutoModel": "strange.Strange"}}
        (folder / "strange.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
        (folder / "config.json").write_text(json.dumps(config))
    elif how == "no model":
        (folder / "config.json").write_text(json.dumps(config | {"architectures": ["logging"]}))
    elif how == "text":
        (folder / "config.json").write_text("not JSON")


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("pickle", FileNotFoundError, "no model.safetensors; pytorch_model.bin is not read"),
        ("shard", FileNotFoundError, "no model-00001-of-00002.safetensors, which"),
        ("index", ValueError, "index.json is damaged"),
        ("weights", ValueError, "cannot be loaded"),
        ("tokenizer", FileNotFoundError, "has no tokenizer.json: the tokenizer"),
        ("tokenizer text", ValueError, "cannot be loaded"),
        ("own code", ValueError, "no model_type 'strange' .*code of its own, which is not run"),
        ("no model", ValueError, "has no logging"),
        ("text", ValueError, "no configuration of transformers"),
    ],
)
def test_what_is_missing_or_damaged_is_named(how, error, message, checkpoint, tmp_path):
    folder = Path(shutil.copytree(checkpoint("encoder"), tmp_path / "model"))
    broken(folder, how)
    with pytest.raises(error, match=message):
        regard.load(folder)
    assert not (folder / "ran").exists()


def test_inputs_that_do_not_fit_are_errors(checkpoint, tmp_path):
    encoder, image = regard.load(checkpoint("encoder")), regard.load(checkpoint("image"))
    with pytest.raises(ValueError, match="reads up to 40"):
        encoder.trace("street " * 50)
    with pytest.raises(ValueError, match="does not write"):
        encoder.trace(TEXT, generate=3)
    with pytest.raises(ValueError, match="no tokens"):
        regard.load(checkpoint("causal")).trace("")
    (tmp_path / "a.png").write_text("text")
    with pytest.raises(ValueError, match="is not an image"):
        image.trace(str(tmp_path / "a.png"))
    with pytest.raises(TypeError, match="list of texts"):
        encoder.predict(TEXT)
    with pytest.raises(ValueError, match="Hugging Face checkpoint"):
        regard.load(checkpoint("encoder"), Translator)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_pretrained(tmp_path / "nowhere")


def test_loading_uses_no_network(checkpoint, monkeypatch):
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"a connection: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for kind in KINDS:
        regard.load(checkpoint(kind))


def test_a_model_of_the_hub_that_cannot_be_downloaded_is_named(monkeypatch):
    def refuse(*arguments: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(OSError, match="somebody/model cannot be downloaded from the hub"):
        load_pretrained("somebody/model", hub=True)


def test_a_checkpoint_without_some_weights_is_loaded_with_a_warning(checkpoint, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(checkpoint("encoder"), tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    del weights["pooler.dense.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.warns(UserWarning, match=r"no weights for 1 tensor.*pooler.dense.bias"):
        regard.load(folder)
