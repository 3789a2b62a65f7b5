"""Strips, grids, diagnostics, curves and comparisons: files with the right things in them."""

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.image import imread

from regard.trace import Call, Trace
from regard.visual.figure import comparison, curves, diagnostics, draw, grid, strip
from regard.visual.figure.lines import read_points
from regard.visual.figure.strip import covering


def share_of(file: Path, color: str) -> float:
    """How much of a PNG has a colour."""
    pixels = imread(file)[:, :, :3]
    wanted = matplotlib.colors.to_rgb(color)
    return float((np.abs(pixels - wanted).max(-1) < 0.02).mean())


def test_links_are_the_largest_weights_that_cover_the_share() -> None:
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    pairs = [(query, key) for query, key, _ in covering(weights.double(), 0.7)]
    assert sorted(pairs) == [(0, 1), (0, 2), (2, 0)]
    assert len(covering(weights.double(), 1.0)) == 4


def test_a_strip_is_drawn_in_any_script(tmp_path: Path) -> None:
    strip(torch.eye(3), ["고양이가", "سلام", "."], ["the", "cat", "$"], tmp_path / "a.png")
    assert share_of(tmp_path / "a.png", "#0a58b8") > 0.001
    strip(torch.eye(2), "ab", "xy", tmp_path / "a.svg", title="t")
    assert (tmp_path / "a.svg").stat().st_size > 1000


def test_a_batch_of_one_keeps_the_labels_of_its_example() -> None:
    call = Call("cross", torch.full((1, 2, 2, 3), 1 / 3), "target", "source")
    drawn = grid(Trace([call], {"target": [["le", "chat"]], "source": [["the", "black", "cat"]]}))
    texts = {text.get_text() for text in drawn.axes[0].findobj(matplotlib.text.Text)}
    assert {"le", "chat", "the", "black", "cat"} <= texts


@pytest.mark.parametrize(
    ("weights", "share", "complaint"),
    [
        (torch.eye(2), 0.0, "share should be above 0"),
        (torch.eye(2) - 1, 0.7, "look like scores"),
        (torch.ones(3, 2), 0.7, "expected 3 query labels"),
    ],
)
def test_a_strip_refuses_what_it_cannot_show(tmp_path, weights, share, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        strip(weights, "ab", "xy", tmp_path / "a.png", share=share)


def test_a_grid_has_a_small_map_for_every_head(tmp_path: Path) -> None:
    heads = torch.zeros(5, 7, 7)
    heads[:, :, 0] = 1  # one yellow column each
    trace = Trace.of_maps({"a": heads[:3], "b": heads}, queries="abcdefg")
    grid(trace, tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")[:, :, :3]
    yellow = np.abs(pixels - matplotlib.colormaps["viridis"](1.0)[:3]).max(-1) < 0.02
    lines = yellow[yellow.any(1)]  # those that cross a map
    begins = (lines[:, 1:] & ~lines[:, :-1]).sum(1)
    assert begins[len(lines) // 4] == 3
    assert begins[len(lines) * 3 // 4] == 5


def test_a_trace_draws_itself_as_what_it_is(tmp_path: Path) -> None:
    single = Trace.of_maps({"a": torch.eye(3)}, queries="abc")
    several = Trace.of_maps({"a": torch.eye(3).repeat(2, 1, 1)}, queries="abc")
    for trace in (single, several, Trace([Call("a", torch.eye(3)[None, None])])):
        drawn = trace.figure(tmp_path / "a.png")
        assert len(drawn.axes) == (3 if trace is several else 2)  # maps and their colour bar
        assert imread(tmp_path / "a.png").any()
    with pytest.raises(ValueError, match=r"trace\.of\(0\)"):
        draw(Trace([Call("a", torch.eye(3).repeat(2, 1, 1, 1))]), tmp_path / "a.png")
    with pytest.raises(ValueError, match="at least one"):
        draw(Trace(), tmp_path / "a.png")


def test_diagnostics_are_drawn_for_calls_with_different_heads(tmp_path: Path) -> None:
    maps = {"a": torch.rand(2, 5, 5).softmax(-1), "b": torch.rand(3, 5, 5).softmax(-1)}
    trace = Trace.of_maps(maps, queries="abcde")
    diagnostics(trace, tmp_path / "a.png", measures=("entropy", "sink"))
    assert (tmp_path / "a.png").is_file()
    with pytest.raises(ValueError, match="got depth"):
        diagnostics(trace, tmp_path / "a.png", measures=("depth",))


def test_a_comparison_shows_the_difference(tmp_path: Path) -> None:
    left, right = torch.eye(3), torch.full((3, 3), 1 / 3)
    names = ("eye", "even")
    file = tmp_path / "a.png"
    comparison(left, right, "abc", "xyz", file, names=names)
    cold = matplotlib.colors.to_hex(matplotlib.colormaps["RdBu_r"](0.0))
    assert share_of(file, cold) > 0.02
    with pytest.raises(ValueError, match="expected 3 key labels"):
        comparison(left, right, "abc", "xy", tmp_path / "a.png")


def test_curves_are_read_from_runs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    lines = [{"step": 5, "loss": 2.0}, {"step": 7, "valid/exact": 0.5}, {"step": 11, "loss": None}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 13, "lo'
    (run / "metrics.jsonl").write_text(text)
    assert read_points(run) == {"loss": [(5, 2.0)], "valid/exact": [(7, 0.5)]}
    curves({"하나": run, "two": run / "metrics.jsonl"}, tmp_path / "a.png")
    assert share_of(tmp_path / "a.png", "#0a58b8") > 0
    with pytest.raises(ValueError, match=r"metrics bleu .* there are loss, valid/exact"):
        curves(run, tmp_path / "a.png", metrics=("bleu",))
    with pytest.raises(FileNotFoundError, match=r"has .*nothing been trained"):
        curves(tmp_path / "nothing", tmp_path / "a.png")
