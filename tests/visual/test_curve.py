"""Curves as text: every point in its cell, and what cannot be drawn."""

import pytest

from regard.visual.curve import HEIGHT, curve


def test_points_stand_where_their_logarithm_and_their_value_are():
    drawn = curve([(1e-4, 10.0), (1e-2, 0.0), (1e0, 5.0)], width=41, mark=1e-3).splitlines()
    cells = {
        (line, column - 8)
        for line, text in enumerate(drawn[:HEIGHT])
        for column, letter in enumerate(text)
        if letter == "•"
    }
    assert cells == {(0, 0), (HEIGHT - 1, 20), (round(5.5), 40)}
    assert drawn[HEIGHT].index("^") - 8 == 10
    assert drawn[0].split()[0] == "10"
    assert drawn[-1].split() == ["0.0001", "1"]


def test_a_flat_curve_is_one_line():
    drawn = curve([(0.1, 2.0), (0.2, 2.0), (0.4, 2.0)]).splitlines()
    assert drawn[0].count("•") == 3


@pytest.mark.parametrize("points", [[], [(1.0, 1.0)], [(0.0, 1.0), (1.0, 1.0)]])
def test_what_cannot_be_drawn_is_an_error(points):
    with pytest.raises(ValueError, match="two points or more with x above 0"):
        curve(points)
