import matplotlib
import numpy as np
import pytest

from regard.visual.color import on_color, terminal_palette, viridis


def test_viridis_is_that_of_matplotlib():
    shares = np.linspace(0, 1, 211)
    expected = matplotlib.colormaps["viridis"](shares)[:, :3] * 255
    assert np.abs(np.array([viridis(share) for share in shares]) - expected).max() < 6


def test_viridis_of_a_share_outside_the_scale_is_the_end_of_the_scale():
    assert viridis(-1) == viridis(0)
    assert viridis(2) == viridis(1)


def test_text_is_white_on_dark_and_black_on_bright():
    assert on_color("x", 0.0, "true") == "\x1b[38;2;255;255;255;48;2;68;1;84mx\x1b[0m"
    assert on_color("x", 1.0, "true") == "\x1b[38;2;0;0;0;48;2;253;231;37mx\x1b[0m"


def test_256_colours_take_the_nearest_of_the_cube():
    # (68, 1, 84) is nearest to (95, 0, 95): 16 + 36 * 1 + 6 * 0 + 1
    assert on_color("x", 0.0, "256") == "\x1b[38;5;231;48;5;53mx\x1b[0m"


@pytest.mark.parametrize(
    ("environment", "is_terminal", "palette"),
    [
        ({"TERM": "xterm-256color"}, True, "256"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, "true"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, False, "plain"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, "plain"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True, "256"),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, True, "plain"),
        ({"TERM": "vt100"}, True, "plain"),
        ({}, False, "plain"),
        ({"FORCE_COLOR": "1"}, False, "256"),
        ({"FORCE_COLOR": "1", "COLORTERM": "24bit"}, False, "true"),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, "plain"),
    ],
)
def test_the_palette_follows_terminal_and_environment(
    environment, is_terminal, palette, monkeypatch
):
    for name in ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, setting in environment.items():
        monkeypatch.setenv(name, setting)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    assert terminal_palette() == palette
