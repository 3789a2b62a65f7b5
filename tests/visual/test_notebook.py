"""How results show themselves: short reprs, and small pieces of HTML without markup of others."""

import xml.etree.ElementTree as ET

import pytest
import torch

import regard
from regard.tasks.compare import Comparison, Row
from regard.tasks.translator import Translation
from regard.trace import Trace

HOSTILE = "<script>alert('&')</script>"


def attended(*shape):
    x = torch.randn(*shape, requires_grad=True)
    return regard.attend(x, x, x, return_map=True)


def translation(tokens=11, source=29, text="2005-10-29"):
    weights = torch.rand(tokens, source)
    return Translation(
        text, [HOSTILE] * tokens, -0.01234, weights, ["a"] * source, {"cross": weights[None]}
    )


def comparison():
    curve = [(float(step), 0.5) for step in range(100)]
    rows = [Row(f"{HOSTILE} {i}", 0.9, 12.0, 34.0, 5678, 9.0, 1.25, curve) for i in range(4)]
    return Comparison("exact match", 0.8, [*rows, Row("last", None, None, None, 1, None, None, [])])


def test_reprs_are_short():
    assert repr(attended(2, 4, 7, 3).map) == "AttentionMap(2, 4, 7, 7)"
    assert repr(attended(2, 4, 7, 3)) == (
        "Attended(output=Tensor(2, 4, 7, 3), map=AttentionMap(2, 4, 7, 7))"
    )
    assert repr(translation()) == "Translation('2005-10-29', score=-0.012, map=(11, 29))"
    assert len(repr(translation(text="word " * 1000))) < 120
    assert repr(translation()._replace(map=None)) == "Translation('2005-10-29', score=-0.012)"
    assert len(repr(comparison())) < 250
    assert len(repr(comparison().rows[0])) < 120


@pytest.mark.parametrize(
    "shown",
    [
        attended(7, 3).map,
        attended(2, 4, 7, 3),
        attended(1, 6, 40, 3).map,
        attended(3000, 2).map,
        attended(2, 0, 3).map,
        regard.attend_linear(*torch.randn(3, 5, 4), return_map=True),
        Trace.of_maps({HOSTILE: torch.rand(3, 5)}, queries=["a"] * 3, keys=["b"] * 5)[HOSTILE],
        translation(),
        translation(100, 90, HOSTILE),
        translation(text=HOSTILE)._replace(map=None),
        comparison(),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_html_is_small_and_escaped(shown):
    html = shown._repr_html_()
    root = ET.fromstring(f"<div>{html}</div>")  # well-formed: every tag is closed
    assert not list(root.iter("script"))
    assert "<script" not in html
    assert len(html) < 400_000


def test_a_map_is_drawn_in_full_up_to_its_limits():
    def cells(shown):
        return shown._repr_html_().count("<rect")

    assert cells(attended(2, 1, 7, 3).map) == 2 * 49
    assert cells(attended(6, 7, 3).map) == 4 * 49
    assert cells(attended(48, 3).map) == 24 * 24  # max-pooled
    assert cells(attended(3000, 2).map) == 24 * 24  # its first rows and columns


def test_weights_of_any_size_and_nan_are_drawn():
    weights = torch.tensor([[-3.0, 5.0], [float("nan"), float("inf")]])
    html = Trace.of_maps({"x": weights}, queries=["a", "b"])["x"]._repr_html_()
    assert html.count("<rect") == 4


def test_a_map_whose_inputs_changed_gives_the_reason():
    x = torch.randn(5, 3)
    map = regard.attend(x, x, x, return_map=True).map
    x.zero_()
    assert "AttentionMap(5, 5)" in map._repr_html_()
    assert "<rect" not in map._repr_html_()
