"""Charts of several models: a line for each, the same wherever it is drawn."""

import itertools

import pytest
from matplotlib.colors import same_color

from regard.visual.figure.canvas import figure
from regard.visual.figure.lines import Panel, label_lines, learning, panels, plot

NAMES = ["plain", "luong-dot", "luong-general"]


def test_names_with_the_same_prefix_share_a_colour_and_differ_in_style():
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
def test_panels_are_written_and_empty_charts_are_refused(tmp_path, log):
    line = {"plain": [(5, 200.0), (20, 700.0)], "luong-dot": []}
    path, again = tmp_path / "new" / "a.svg", tmp_path / "b.svg"
    panels([Panel("a", line, log)] * 3, path, against="length")
    assert path.read_text().startswith("<?xml")
    if log:  # a 0 cannot be shown, and is left out
        line["plain"].append((20, 0.0))
        panels([Panel("a", line, log)] * 3, again, against="length")
        assert again.read_text() == path.read_text()
    with pytest.raises(ValueError, match="no model has a point"):
        panels([Panel("a", {"plain": []})], path, against="length")
    with pytest.raises(ValueError, match="nothing to draw"):
        learning({"plain": []}, path, metric="exact")


def test_runs_of_very_different_times_are_drawn_and_marked(tmp_path):
    runs = {"plain": [(1.0, 0.2), (3.0, 0.5)], "gnmt": [(20.0, 0.1), (400.0, 0.9)]}
    far, near = tmp_path / "a.svg", tmp_path / "b.svg"
    learning(runs, far, metric="exact", target=0.8)
    runs["gnmt"][1] = (4.0, 0.9)
    learning(runs, near, metric="exact")
    assert far.read_text() != near.read_text()


def test_lines_are_labelled_at_their_ends_without_overlaps():
    place = figure(3, 3).subplots()
    same = [(1.0, 2.0), (3.0, 5.0)]
    plot(place, {"plain": same, "luong-dot": same, "luong-general": [(1.0, 0.0)]}, NAMES)
    label_lines(place)
    labels = {text.get_text(): text for text in place.texts}
    assert labels.keys() == set(NAMES)
    heights = sorted(text.get_position()[1] for text in place.texts)
    inches = place.get_window_extent().height / place.get_figure().dpi
    assert min(b - a for a, b in itertools.pairwise(heights)) * inches > 0.13
    assert heights[-1] <= 1
    plain, dot, _ = place.get_lines()
    assert same_color(labels["plain"].get_color(), plain.get_color())
    assert plain.get_linewidth() > dot.get_linewidth()  # seen beneath the line that hides it
