"""A translation seen from inside, by every kind of model."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regard.data import train_tokenizer
from regard.tasks.translate import Translator, build_model


def translator(kind: str, **options: object) -> Translator:
    torch.manual_seed(0)
    letters = train_tokenizer("characters", ["abcdefg"])
    model = build_model({"kind": kind, "preset": "tiny", **options}, letters, letters)
    return Translator(model, letters, letters)


@pytest.mark.parametrize("kind", ["bahdanau", "luong", "transformer"])
@pytest.mark.parametrize("beam", [1, 3])
def test_the_maps_are_those_of_the_translation(kind: str, beam: int) -> None:
    model = translator(kind)
    (found,) = model.translate(["cabbage"], beam=beam, return_map=True)
    trace = model.trace("cabbage", beam=beam)
    assert trace.about["translation"] == found.text
    assert trace.tokens["source"] == list("cabbage")
    assert trace.tokens["target"] == found.tokens
    assert trace.tokens["prefix"][1:] == found.tokens[:-1]
    crossing = [c for c in trace.calls if (c.queries, c.keys) == ("target", "source")]
    mean = torch.cat([call.map.dense() for call in crossing]).mean(0)
    torch.testing.assert_close(mean, found.map, atol=1e-4, rtol=1e-3)
    for call in trace.calls:
        assert call.inputs is not None
        trace.check(call)


def test_the_likeliest_next_tokens_are_kept() -> None:
    trace = translator("luong").trace("fade")
    rows = trace.about["outputs"]["target"]
    assert len(rows) == len(trace.tokens["target"])
    for row, token in zip(rows, trace.tokens["target"], strict=True):
        shares = [share for _, share in row]
        assert shares == sorted(shares, reverse=True)
        assert row[0][0] == token  # greedy


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(ValueError, match="empty text"):
        translator("luong").trace("")


def test_checkpoints_show_the_same_words_with_other_weights(tmp_path: Path) -> None:
    model = translator("luong")
    own = {name: tensor.clone() for name, tensor in model.model.state_dict().items()}
    for step in (5, 11):
        folder = tmp_path / "checkpoints" / f"step-{step}"
        folder.mkdir(parents=True)
        tensors = {name: tensor * step / 20 for name, tensor in own.items()}
        save_file(tensors, folder / "model.safetensors")
    traces = model.trace_checkpoints(tmp_path, "bead")
    assert list(traces) == ["step 5", "step 11", "final"]
    maps = [trace.calls[0].map.dense() for trace in traces.values()]
    assert len({trace.about["translation"] for trace in traces.values()}) == 1
    assert not torch.allclose(maps[0], maps[2])
    torch.testing.assert_close(maps[2], model.trace("bead").calls[0].map.dense())
    with pytest.raises(FileNotFoundError, match="no checkpoints in"):
        model.trace_checkpoints(tmp_path / "none", "bead")
