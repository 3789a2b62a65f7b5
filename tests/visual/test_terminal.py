"""Maps as text, in colours and in characters; a trace in the terminal."""

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.trace import Call, Trace
from regard.visual import heatmap
from regard.visual.display_width import display_width
from regard.visual.terminal import show

ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def test_the_darkest_character_marks_the_largest_weight():
    picture = heatmap([[0.0, 0.5], [1.0, 0.2]], "ab", "xy", color="plain")
    assert picture.splitlines() == ["  x  y", "a    ==", "b @@ ::", "0 [ .:-=+*#%@] 1"]


def test_rows_are_queries_and_columns_are_keys():
    weights = torch.zeros(3, 5)
    weights[2, 4] = 1.0
    lines = heatmap(weights, "abc", "vwxyz", color="plain").splitlines()
    assert lines[0].index("z") == lines[3].index("@")
    assert lines[3].startswith("c")
    assert "@" not in "".join(lines[:3])


def test_scores_below_zero_are_drawn_from_their_lowest_value():
    lines = heatmap([[-4.0, 4.0]], "q", "ab", color="plain").splitlines()
    assert lines[1:] == ["q    @@", "-4 [ .:-=+*#%@] 4"]


def test_a_map_of_zeros_is_blank():
    lines = heatmap(torch.zeros(2, 3), "ab", "xyz", color="plain").splitlines()
    assert lines[1:] == ["a", "b", "0 [ .:-=+*#%@] 0"]


def test_a_coloured_cell_shows_its_weight():
    picture = heatmap([[0.25, 0.75]], ["q"], ["one", "two"], color="true")
    row = picture.splitlines()[1]
    assert ESCAPE.sub("", row) == "q  .25  .75 "
    assert "48;2;253;231;37m .75 " in row


def test_every_palette_draws_cells_of_the_same_place():
    weights = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
    true, fewer = (heatmap(weights, "abc", "vwxyz", color=color) for color in ("true", "256"))
    assert "48;2;" in true
    assert "48;5;" in fewer
    assert ESCAPE.sub("", true) == ESCAPE.sub("", fewer)


def test_no_escape_reaches_a_pipe(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert "\x1b" not in heatmap(torch.eye(2), "ab", "cd")


def test_wide_labels_keep_the_columns_in_line():
    keys = ["고양이", "ネコ", "cat", "🐈‍⬛", "né"]
    lines = heatmap(torch.eye(5), keys, keys, color="plain", width=60).splitlines()
    starts = []
    for number, line in enumerate(lines[1:6]):
        starts.append(display_width(line[: line.index("@")]))
        label_start = display_width(lines[0][: lines[0].index(keys[number])])
        assert label_start == starts[-1]
    assert starts == [7, 14, 21, 28, 35]  # the widest label has six columns, and a gap of one


def test_labels_stand_upright_where_they_do_not_fit_side_by_side():
    lines = heatmap(torch.eye(3), "abc", ["ab", "longest", "고양이"], color="plain", width=17)
    header = lines.splitlines()[:7]
    assert [line[2] for line in header[-2:]] == ["a", "b"]
    assert [line[5] for line in header] == list("longest")
    assert "".join(re.findall("[가-힣]", "".join(header))) == "고양이"


def test_a_right_to_left_row_starts_in_an_isolate_and_stays_in_line():
    lines = heatmap(torch.eye(2), ["שלום", "peace"], ["مرحبا", "hello"], color="plain").splitlines()
    assert lines[1].lstrip().startswith("\u2068שלום\u2069")
    assert display_width(lines[1][: lines[1].index("@")]) == 6
    assert "\u2068مرحبا\u2069" in lines[0]


def test_pooling_keeps_a_single_spike():
    weights = torch.full((997, 1009), 0.001)
    weights[503, 701] = 1.0
    lines = heatmap(weights, ["q"] * 997, ["k"] * 1009, color="plain", width=53).splitlines()
    rows = [line for line in lines if line.startswith("q…")]
    assert sum(line.count("@") for line in rows) == 1
    (row,) = (number for number, line in enumerate(rows) if "@" in line)
    assert row == 503 // 19  # 997 rows in 53 lines: 19 to a line
    # Two columns of label and one of gap leave 50, so 21 keys go to a cell.
    assert rows[row].index("@") - 3 == 701 // 21


@settings(max_examples=40)
@given(
    st.lists(st.text(max_size=19), min_size=1, max_size=29),
    st.lists(st.text(max_size=19), min_size=1, max_size=97),
    st.integers(16, 89),
    st.sampled_from(["plain", "256", "true"]),
)
def test_no_line_is_wider_than_the_width(queries, keys, width, color):
    weights = torch.rand(len(queries), len(keys))
    lines = heatmap(weights, queries, keys, width=width, color=color).splitlines()
    assert max(display_width(ESCAPE.sub("", line)) for line in lines[:-1]) <= width


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_an_empty_map_has_labels_and_a_scale(shape):
    lines = heatmap(torch.ones(shape), "ab"[: shape[0]], "xyz"[: shape[1]], color="plain")
    assert lines.endswith("0 [ .:-=+*#%@] 0")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.bool])
def test_any_dtype_and_any_gradient_is_drawn(dtype):
    weights = torch.eye(2, dtype=dtype).requires_grad_(dtype.is_floating_point)
    expected = heatmap([[1.0, 0.0], [0.0, 1.0]], "ab", "xy", color="plain")
    assert heatmap(weights, "ab", "xy", color="plain") == expected


def test_nan_is_reported_with_its_place():
    weights = torch.eye(3)
    weights[2, 1] = torch.nan
    with pytest.raises(ValueError, match="finite weights, got nan for query 2 and key 1"):
        heatmap(weights, "abc", "xyz")


def test_a_wrong_number_of_labels_is_reported():
    with pytest.raises(ValueError, match=r"expected 3 key labels .* \(2, 3\), got 2"):
        heatmap(torch.ones(2, 3), "ab", "xy")
    with pytest.raises(ValueError, match=r"expected 2 query labels .* \(2, 3\), got 3"):
        heatmap(torch.ones(2, 3), "abc", "xyz")


def test_a_stack_of_maps_is_reported_with_a_remedy():
    with pytest.raises(ValueError, match=r"got shape \(2, 3, 5\).*weights\[0, 0\]"):
        heatmap(torch.ones(2, 3, 5), "abc", "vwxyz")


def test_a_width_without_room_is_reported():
    with pytest.raises(ValueError, match="at least 16 columns, got 5"):
        heatmap(torch.eye(2), "ab", "xy", width=5)


def test_maps_between_texts_are_shown_and_the_others_counted() -> None:
    calls = [
        Call("self", torch.eye(2)[None], "source", "source"),
        Call("cross", torch.eye(2).repeat(3, 1, 1), "target", "source"),
    ]
    text = show(Trace(calls, {"source": ["the", "cat"], "target": ["le", "chat"]}), color="plain")
    assert text.startswith("cross, mean of 3 heads\n")
    assert "chat" in text
    assert text.endswith("and 1 more: choose by name (--attention, trace.select); a page shows all")


def test_a_batch_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r"trace\.of\(0\)"):
        show(Trace([Call("a", torch.eye(3).repeat(2, 1, 1, 1))]))


def test_a_trace_shows_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = Trace.of_maps({"a": torch.eye(2)}, queries=["<b>", "b"])
    trace.show(width=40)
    assert "<b>" in capsys.readouterr().out
    page = trace.page(tmp_path / "a.html", language="ko").read_text()
    assert page.count("<regard-page></regard-page>") == 1
    assert trace._repr_html_().startswith("<iframe")
    batch = Trace([Call("<i>", torch.eye(2).repeat(2, 1, 1, 1))])
    assert batch._repr_html_().startswith("<pre>Trace of 1")
    assert "<i>" not in batch._repr_html_()
