"""A map becomes a PNG or an SVG with the right colours and labels, in any script."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.image import imread

from regard.visual.figure import heatmap
from regard.visual.figure.canvas import figure
from regard.visual.figure.heatmap import draw_map

WEIGHTS = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.5, 0.25]])


def test_the_colours_of_a_png_are_those_of_the_weights(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.png"
    heatmap(WEIGHTS, ["a", "b"], ["x", "y", "z"], file)
    pixels = imread(file)
    map_only = pixels[:, : pixels.shape[1] * 5 // 6, :3]  # without the colour bar
    area = {}
    for weight in (1.0, 0.0, 0.25, 0.5):
        color = matplotlib.colormaps["viridis"](weight)[:3]
        area[weight] = (np.abs(map_only - color).max(-1) < 0.01).sum()
    cells = [area[weight] / area[1.0] for weight in (1.0, 0.0, 0.25, 0.5)]
    assert cells == pytest.approx([1, 2, 2, 1], abs=0.1)


def test_an_svg_is_the_same_file_each_time_and_draws_letters_as_outlines(tmp_path: Path) -> None:
    arguments = (WEIGHTS, ["le", "<chat>"], ["the", "$cat$", "고양이"])
    for name in ("a.svg", "b.svg"):
        heatmap(*arguments, tmp_path / name, title="네")
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    assert b"<text" not in first
    assert b"<chat>" not in first


def test_grey_is_white_where_the_weight_is_one(tmp_path: Path) -> None:
    for weight in (0.0, 1.0):
        weights = torch.full((5, 5), weight)
        heatmap(weights, "abcde", "vwxyz", tmp_path / "a.png", colors="gray")
        pixels = imread(tmp_path / "a.png")
        assert pixels[pixels.shape[0] // 2, pixels.shape[1] // 2, 0] == weight


def test_a_long_map_is_pooled_and_its_spike_survives(tmp_path: Path) -> None:
    weights = torch.zeros(1500, 1100)
    weights[701, 503] = 1.0
    labels = [str(index) for index in range(1500)]
    heatmap(weights, labels, labels[:1100], tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")
    yellow = np.array(matplotlib.colormaps["viridis"](1.0)[:3])
    assert (np.abs(pixels[:, : pixels.shape[1] * 3 // 4, :3] - yellow).max(-1) < 0.02).any()


@pytest.mark.parametrize(
    ("weights", "name", "complaint"),
    [
        (torch.ones(2, 3, 1), "a.png", "choose a batch entry and a head"),
        (torch.ones(3, 3), "a.png", "expected 3 query labels"),
        (torch.full((2, 3), torch.nan), "a.png", "finite weights, got nan for query 0 and key 0"),
        (WEIGHTS, "a.jpg", r"\.png or \.svg, got 'a\.jpg'"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, weights, name: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        heatmap(weights, ["a", "b"], ["x", "y", "z"], tmp_path / name)


def test_an_empty_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        heatmap(torch.ones(0, 3), [], ["x", "y", "z"], tmp_path / "a.png")


@pytest.mark.parametrize(("key", "angle"), [("고양", 0), ("a", 0), ("고양이가", 90)])
def test_key_labels_are_horizontal_where_there_is_room(key: str, angle: int) -> None:
    axes = figure(5, 3).add_subplot()
    draw_map(axes, torch.eye(7), list("abcdefg"), [key] * 7)
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {angle}
