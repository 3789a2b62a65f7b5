"""A shaded document: every word once, in its place, whatever blanks and titles are like."""

import re
from pathlib import Path

import pytest

from regard.visual.document import ShadedDocument
from regard.visual.figure.document import draw_document

BLANKS = ShadedDocument(
    [["so", " ", " good", "\n", "though"], ["bye"]],
    [[0.5, 0.0, 0.25, 0.0, 0.25], [1.0]],
    [0.75, 0.25],
    title="of $5 and {rows} $rows",
)


def test_blanks_between_words_leave_each_word_its_label_in_a_figure(tmp_path: Path) -> None:
    draw_document(BLANKS, tmp_path / "a.svg")
    drawn = re.findall(r"<!-- (.*?) -->", (tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert [text.strip() for text in drawn] == [
        *("0.75", "0.25"),
        *("so", "good", "though", "bye"),
        BLANKS.title,
    ]


def test_blanks_take_room_and_no_signs_in_a_terminal() -> None:
    assert BLANKS.show(width=60, color="plain").splitlines()[1:3] == [
        "0.75 |##########| so  good though",
        "                | %%  ==== ======",
    ]


def test_a_missing_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a weight for each word"):
        ShadedDocument([["a", "b"]], [[1.0]], [1.0])
