"""A trace is written, read in parts, and validated when it comes from an untrusted file."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.layers import CoAttention, MultiHeadAttention
from regard.trace import Trace
from regard.trace.file import FORMAT, _check_rows


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).softmax(-1)


def header(**changes: object) -> dict:
    call = {"name": "a", "queries": "target", "keys": "source"}
    call |= {"distribution": True, "provenance": {}}
    tokens = {"target": list("abc"), "source": list("vwxyz")}
    return {"calls": [call], "tokens": tokens, "about": {}, "missed": []} | changes


def write(path, text: object, tensors: dict, form: str = FORMAT):
    text = text if isinstance(text, str) else json.dumps(text)
    save_file(tensors, path, metadata={"format": form, "trace": text})
    return path


def test_a_trace_comes_back_as_it_was(tmp_path):
    maps = {"one": weights(2, 3, 5), "two": weights(7, 3, 5).double()}
    trace = Trace.of_maps(maps, queries=["<b>", "ㄱ", "🐱"], keys=list("vwxyz"), text="미안")
    trace.save(tmp_path / "a.attn")
    back = regard.load_trace(tmp_path / "a.attn")
    assert back.names == ["one", "two"]
    assert back.tokens == trace.tokens
    assert back.about == {"text": "미안"}
    for name, map in maps.items():
        assert torch.equal(back[name].map.dense(), map)
        assert torch.equal(back[name].map[1, 1:3, 2:4], map[1, 1:3, 2:4])
        assert torch.equal(back[name].map.topk(2).values, map.topk(2).values)
    assert [path.name for path in tmp_path.iterdir()] == ["a.attn"]


def test_a_captured_batch_is_saved_with_its_error_and_its_inputs(tmp_path):
    layer = MultiHeadAttention(6, heads=2).eval()
    with regard.capture(layer) as trace, torch.no_grad():
        layer(torch.randn(3, 5, 6))
    trace.label(source=[list("abcde"), list("fgh"), ["i"]])
    trace.save(tmp_path / "a.attn", inputs=True)
    (call,) = regard.load_trace(tmp_path / "a.attn")
    assert call.provenance["error"] < 1e-6
    assert call.provenance["path"] == "fused"
    assert torch.equal(call.map.dense(), trace.calls[0].map.dense())
    query, key, value, score, *_ = call.inputs
    assert torch.allclose(score(query, key).softmax(-1), call.map.dense(), atol=1e-6)
    assert value.shape == (3, 2, 5, 3)
    assert regard.load_trace(tmp_path / "a.attn").of(1).calls[0].shape == (2, 3, 3)


def test_a_trace_can_be_saved_over_the_file_it_is_read_from(tmp_path):
    Trace.of_maps({"a": weights(3, 3)}, queries=list("abc")).save(tmp_path / "a.attn")
    trace = regard.load_trace(tmp_path / "a.attn")
    trace.select(rows=slice(0, 2)).save(tmp_path / "a.attn")
    assert regard.load_trace(tmp_path / "a.attn").calls[0].shape == (1, 2, 3)


def test_weights_of_a_normalizer_of_ones_own_need_not_sum_to_one(tmp_path):
    co = CoAttention(6, 6, hidden=5)
    with regard.capture(co) as trace:
        co(torch.randn(2, 3, 6), torch.randn(2, 5, 6))
    trace.save(tmp_path / "a.attn")
    back = regard.load_trace(tmp_path / "a.attn")
    assert any(float(call.map.dense().min()) < 0 for call in back)


@pytest.mark.parametrize(
    ("map", "complaint"),
    [
        (torch.tensor([[0.5, float("nan")]]), "contains NaN or infinity"),
        (torch.tensor([[0.5, 0.8]]), "largest sum 1.3"),
        (torch.tensor([[1.5, -0.5]]), "smallest weight is -0.5"),
    ],
)
def test_what_is_no_attention_is_neither_written_nor_read(tmp_path, map, complaint):
    trace = Trace.of_maps({"a": map}, queries=["q"], keys=["k", "l"])
    with pytest.raises(ValueError, match=complaint):
        trace.save(tmp_path / "a.attn")
    assert list(tmp_path.iterdir()) == []
    tokens = {"target": ["q"], "source": ["k", "l"]}
    path = write(tmp_path / "a.attn", header(tokens=tokens), {"0": map[None]})
    foreign = regard.load_trace(path)
    with pytest.raises(ValueError, match=complaint):
        foreign["a"].map.dense()


def test_rounded_weights_are_still_attention():
    rounded = weights(3, 1000).to(torch.bfloat16)
    _check_rows(rounded, "a", True)


def call(**changes: object) -> dict:
    return header()["calls"][0] | changes


def missed(**changes: object) -> dict:
    return {"name": "a", "kind": "A", "reason": "r"} | changes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not a valid trace"),
        ("[" * 100_000, "not a valid trace"),
        ([], "the header should be dict"),
        ({}, "'tokens' is missing"),
        (header(tokens=[]), "tokens should be dict"),
        (header(tokens={"target": [1, 2, 3]}), "target tokens should be strings"),
        (header(tokens={"target": [["a"], "b"]}), "tokens should be list"),
        (header(tokens={"target": ["a"]}), "there are 1 target tokens"),
        (header(calls=[3]), "call 0 should be dict"),
        (header(calls=[call(name=3)]), "name of call 0 should be str"),
        (header(calls=[call(provenance=[])]), "provenance of 'a' should be dict"),
        (header(calls=[call(), call()]), "map of 'a' is missing"),
        (header(about=3), "about should be dict"),
        (header(missed={}), "missed should be list"),
        (header(missed=["a"]), "an entry of missed should be dict"),
        (header(missed=[{"name": "a", "kind": "A"}]), "'reason' is missing"),
        (header(missed=[missed(reason=3)]), "reason of missed should be str"),
        (header(missed=[missed(name="\x1b[2J")]), "characters that cannot be printed"),
    ],
)
def test_a_malformed_header_is_an_error(tmp_path, text, complaint):
    path = write(tmp_path / "a.attn", text, {"0": weights(2, 3, 5)})
    with pytest.raises(ValueError, match=complaint):
        regard.load_trace(path)


@pytest.mark.parametrize(
    ("map", "complaint"),
    [
        (torch.ones(2, 3, 5, dtype=torch.int64), "holds I64"),
        (torch.ones(3, 5), r"not \(heads, M, N\)"),
    ],
)
def test_a_map_of_the_wrong_kind_is_an_error(tmp_path, map, complaint):
    path = write(tmp_path / "a.attn", header(), {"0": map})
    with pytest.raises(ValueError, match=complaint):
        regard.load_trace(path)


def test_two_calls_of_one_name_are_an_error(tmp_path):
    maps = {"0": weights(2, 3, 5), "1": weights(2, 3, 5)}
    path = write(tmp_path / "a.attn", header(calls=[call(), call()]), maps)
    with pytest.raises(ValueError, match="two calls have one name"):
        regard.load_trace(path)


def test_foreign_and_truncated_files_are_told_apart_from_traces(tmp_path):
    path = tmp_path / "a.attn"
    with pytest.raises(FileNotFoundError, match="trace file"):
        regard.load_trace(path)
    Trace.of_maps({"a": weights(3, 3)}, queries=list("abc")).save(path)
    whole = path.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a trace, or is truncated"):
            regard.load_trace(path)
    path.write_bytes(struct.pack("<Q", 2**62) + whole[8:])
    with pytest.raises(ValueError, match="not a trace"):
        regard.load_trace(path)
    save_file({"0": weights(2, 3, 5)}, path)
    with pytest.raises(ValueError, match="got 'nothing'"):
        regard.load_trace(path)
    write(path, header(), {"0": weights(2, 3, 5)}, form="regard.attn/99")
    with pytest.raises(ValueError, match=r"'regard\.attn/99'"):
        regard.load_trace(path)
