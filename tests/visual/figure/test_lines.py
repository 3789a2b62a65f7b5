"""Charts of several models: a line for each, the same wherever it is drawn."""

import pytest
from matplotlib.colors import same_color

from regard.visual.figure.canvas import figure
from regard.visual.figure.learning import learning
from regard.visual.figure.lines import Panel, panels, plot

NAMES = ["plain", "luong-dot", "luong-general"]


def test_names_that_begin_alike_share_a_colour_and_differ_in_their_lines():
    place = figure(3, 3).subplots()
    plot(place, {"luong-general": [(1, 2), (3, 5)]}, NAMES)
    plain, dot, general = place.get_lines()
    assert same_color(dot.get_color(), general.get_color())
    assert not same_color(dot.get_color(), plain.get_color())
    assert dot.get_linestyle() != general.get_linestyle()
    assert [line.get_label() for line in place.get_lines()] == NAMES
    assert general.get_xydata().tolist() == [[1, 2], [3, 5]]
    assert len(plain.get_xydata()) == 0


@pytest.mark.parametrize("log", [False, True])
def test_panels_are_written_and_nothing_is_not(tmp_path, log):
    line = {"plain": [(5, 200.0), (20, 700.0)], "luong-dot": []}
    path = panels([Panel("a", line, log)] * 3, tmp_path / "new" / "a.svg", against="length")
    assert path.read_text().startswith("<?xml")
    with pytest.raises(ValueError, match="no model has a point"):
        panels([Panel("a", {"plain": []})], path, against="length")
    with pytest.raises(ValueError, match="nothing to draw"):
        learning({"plain": []}, path, metric="exact")
