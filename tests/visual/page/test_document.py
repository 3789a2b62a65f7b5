"""A page is one file: safe whatever tokens say, small, and clear about what it cannot show."""

import base64
import hashlib
import json
import re
import tomllib
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.analysis import diagnose
from regard.trace import Call, Missed, Trace
from regard.visual.page import document, iframe, payload, write

EVIL = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\u2028", "\ud800"]
WEB = Path(regard.__file__).parent / "visual" / "page" / "web"


def data_of(html: str) -> dict:
    (text,) = re.findall(r'id="regard-data">(.*?)</script>', html)
    return json.loads(text)


def unpacked(html: str, bundle: dict) -> dict[str, np.ndarray]:
    (text,) = re.findall(rf'id="{bundle["chunk"]}">(.*?)</script>', html)
    raw, found = zlib.decompress(base64.b64decode(text)), {}
    for name, code, count in bundle["arrays"]:
        found[name] = np.frombuffer(raw, f"<{code}", count)
        raw = raw[count * np.dtype(code).itemsize :]
    assert raw == b""
    return found


def test_tokens_are_text_and_never_markup() -> None:
    html = document(Trace.of_maps({"<b>": torch.eye(4)}, queries=EVIL, text=EVIL[1]))
    assert "<img" not in html
    assert "<b>" not in html
    assert "<script>alert" not in html
    assert data_of(html)["labels"][0][:2] == EVIL[:2]


def test_what_was_not_recorded_is_listed_once_as_text() -> None:
    traces = {
        label: Trace.of_maps({"a": torch.eye(2)}, queries="ab") for label in ("first", "second")
    }
    assert data_of(document(traces))["missed"] == []
    for trace in traces.values():
        trace.missed = [Missed("layers.0", EVIL[0], EVIL[1]), Missed("layers.1", "A", "r")]
    html = document(traces)
    assert "<img" not in html
    assert data_of(html)["missed"] == [f"layers.0 ({EVIL[0]}): {EVIL[1]}", "layers.1 (A): r"]


def test_every_module_is_carried_after_the_modules_that_it_imports() -> None:
    html = document(Trace.of_maps({"a": torch.eye(2)}, queries="ab"))
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    carried = re.findall(r'^modules\["(.*?)"\] = ', script, re.MULTILINE)
    places = {name: place for place, name in enumerate(carried)}
    assert {*carried, "computed.js"} == {file.name for file in WEB.glob("*.js")}  # of the studio
    for file in map(WEB.joinpath, carried):
        code = file.read_text(encoding="utf-8")
        imported = re.findall(r'(?:from|import) "regard/(.*?)"', code)
        assert len(imported) == len(re.findall("^import ", code, re.MULTILINE))
        assert all(places[name] < places[file.name] for name in imported)
    assert not re.search("^(import|export) ", script, re.MULTILINE)
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in html


def test_the_policy_allows_one_script_by_its_hash_and_no_request() -> None:
    html = document(Trace.of_maps({"a": torch.eye(2)}, queries="ab"))
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', html)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    executable = re.findall(r"<script(?! type=\"(?:text/plain|application/json)\")", html)
    assert len(executable) == 1


def test_a_page_replaces_a_file_only_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace.of_maps({"a": torch.eye(2)}, queries="ab")
    file = write(trace, tmp_path / "new" / "a.html")
    before = file.read_text()

    def full_disk(self: Path, text: str, **options: str) -> int:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space"):
        write(trace, file)
    assert file.read_text() == before
    assert list(file.parent.iterdir()) == [file]


def test_the_files_of_the_page_are_shipped() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    shipped = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert "visual/page/web/*" in shipped["package-data"]["regard"]


def test_a_small_map_is_kept_in_16_bits_and_a_large_page_in_10_or_8(monkeypatch) -> None:
    weights = torch.rand(2, 7, 11).softmax(-1)
    html = document(Trace.of_maps({"a": weights}, queries="abcdefg", keys="abcdefghijk"))
    (call,) = data_of(html)["traces"][0]["calls"]
    assert (call["kind"], call["bits"]) == ("dense", 16)
    for head in range(2):
        kept = unpacked(html, call["maps"][head])
        exact = kept["cells"].reshape(7, 11) / 65535 * kept["scale"][:, None]
        np.testing.assert_allclose(exact, weights[head].numpy(), atol=1e-5)

    large = torch.rand(1, 401, 401).mul(90).softmax(-1)
    for bits, tolerance in ((10, 0.001), (8, 0.004)):
        html = document(Trace.of_maps({"a": large}, queries=[*map(str, range(401))]))
        (call,) = data_of(html)["traces"][0]["calls"]
        assert call["bits"] == bits
        kept = unpacked(html, call["maps"][0])
        levels = 2.0**bits - 1
        near = (kept["cells"].reshape(401, 401) / levels) ** 2 * kept["scale"][:, None]
        np.testing.assert_allclose(near, large[0].numpy(), atol=tolerance)
        monkeypatch.setattr(payload, "CLOSE", 2**17)  # the page is too large for 10 bits


def test_a_long_lazy_map_keeps_the_largest_of_each_row_and_the_largest_of_each_tile() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 3001, 8)
    attended = regard.attend(query * 2, key, key, return_map=True)
    call = Call("long", attended.map, "source", "source", {"path": "fused"})
    html = document(Trace([call]))
    assert len(html) < 8_000_000
    (about,) = data_of(html)["traces"][0]["calls"]
    assert about["kind"] == "sparse"
    kept = unpacked(html, about["maps"][0])
    values, indices = attended.map.topk(about["k"])
    cells = kept["weights"].reshape(3001, about["k"]) / 65535 * kept["scale"][:, None]
    np.testing.assert_allclose(cells, values[0].numpy(), atol=1e-4)
    assert (kept["keys"].reshape(3001, -1)[:, 0] == indices[0, :, 0].numpy()).mean() > 0.99
    height, width = about["pool"]
    pooled = (kept["pooled"].reshape(height, width) / 255.0) ** 2 * kept["poolScale"][:, None]
    assert pooled.max() == pytest.approx(float(attended.map.topk(1).values.max()), rel=0.02)
    dense = attended.map.dense()[0]
    tile = dense[: -(-3001 // height), : -(-3001 // width)]
    largest = float(tile.max())
    error = (largest * float(kept["poolScale"][0])) ** 0.5 / 255  # of 8 bits for the square root
    assert pooled[0, 0] == pytest.approx(largest, abs=1.1 * error)


def test_diagnostics_distinguish_heads() -> None:
    before = torch.zeros(5, 5)
    before[0, 0] = before[1:, :-1].fill_diagonal_(1)[0, 0]
    heads = torch.stack([torch.eye(5), before, torch.full((5, 5), 0.2), torch.eye(5)[[0] * 5]])
    html = document(Trace.of_maps({"a": heads}, queries="abcde"))
    own, previous, even, sink = data_of(html)["traces"][0]["calls"][0]["diagnostics"]
    assert own["entropy"] == 0
    assert own["diagonal"] == 1
    assert previous["previous"] == 1
    assert even["entropy"] == pytest.approx(np.log(5), abs=1e-3)
    assert sink["sink"] == 1
    assert own["diagonal"] > previous["diagonal"] > even["diagonal"]


def test_diagnostics_are_those_of_the_analysis() -> None:
    weights = torch.rand(3, 7, 5).mul(4).softmax(-1)
    weights[1, 3] = 0  # a query that sees nothing
    trace = Trace.of_maps({"a": weights}, queries="abcdefg", keys="abcde")
    shown = data_of(document(trace))["traces"][0]["calls"][0]["diagnostics"]
    for own, row in zip(diagnose(trace), shown, strict=True):
        expected = [own.entropy, own.sink, own.diagonality, own.previous, own.next]
        assert list(row.values()) == pytest.approx(expected, abs=1e-4)


def test_the_notebook_frame_is_sandboxed_and_holds_the_page() -> None:
    html = iframe(document(Trace.of_maps({"a": torch.eye(2)}, queries='"<')))
    assert html.count("<") == 2
    assert 'sandbox="allow-scripts"' in html


WRONG = torch.tensor([[0.5, 0.5], [0.9, 0.3]])


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (WRONG, r"query 1 of head 0 of 'a' sums to 1\.2, not to 1"),
        (WRONG / 2, r"query 0 of head 0 of 'a' sums to 0\.5, not to 1"),
        (torch.tensor([[torch.nan, 1], [0, 1]]), "query 0 .* NaN or infinite"),
        (torch.tensor([[1.0, 0], [-1, 2]]), "query 1 .* negative weight; give weights, not scores"),
    ],
)
def test_invalid_attention_maps_are_refused(weights: torch.Tensor, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        document(Trace.of_maps({"a": weights}, queries="ab"))


def test_a_recorded_map_may_sum_to_less_than_one_and_a_query_may_see_nothing() -> None:
    call = Call("local", torch.tensor([[[0.5, 0.2], [0.0, 0.0]]]), provenance={"path": "reference"})
    document(Trace([call]))
    document(Trace.of_maps({"a": torch.tensor([[1.0, 0.0], [0.0, 0.0]])}, queries="ab"))


def test_a_map_of_sigmoid_attention_may_sum_to_more_than_one() -> None:
    recorded = {"path": "blockwise", "normalizer": "sigmoid"}
    document(Trace([Call("gates", torch.tensor([[[0.9, 0.8], [0.1, 0.0]]]), provenance=recorded)]))
    with pytest.raises(ValueError, match="a weight above 1"):
        document(Trace([Call("gates", torch.tensor([[[1.9, 0.8]]]), provenance=recorded)]))


def test_errors_name_what_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one attention call"):
        document(Trace())
    with pytest.raises(ValueError, match="needs a trace"):
        document({})
    with pytest.raises(ValueError, match=r"choose one with trace\.of\(0\)"):
        document(Trace([Call("a", torch.rand(3, 2, 5, 5).softmax(-1))]))
    with pytest.raises(ValueError, match="nothing to show"):
        document(Trace([Call("a", torch.zeros(1, 0, 5))]))
    with pytest.raises(ValueError, match="there are 3 target tokens"):
        document(Trace([Call("a", torch.eye(2)[None])], {"target": ["a", "b", "c"]}))
    with pytest.raises(ValueError, match="en or ko, got 'fr'"):
        document(Trace.of_maps({"a": torch.eye(2)}, queries="ab"), language="fr")
    with pytest.raises(ValueError, match=r"\.html, got 'a\.png'"):
        write(Trace.of_maps({"a": torch.eye(2)}, queries="ab"), tmp_path / "a.png")
