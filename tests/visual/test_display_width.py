import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.visual.display_width import display_width, fit, letters, printable


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("cat", 3),
        ("naïve", 5),
        (unicodedata.normalize("NFD", "naïve"), 5),
        ("고양이", 6),
        (unicodedata.normalize("NFD", "고양이"), 6),  # initial, vowel and final jamo
        ("カタカナ", 8),
        ("ｶﾀｶﾅ", 4),  # half-width forms
        ("ＡＢ", 4),  # full-width forms
        ("漢字", 4),
        ("😀", 2),
        ("👍🏽", 2),  # with a skin tone
        ("👩‍👩‍👧‍👦", 2),  # four people joined into one family
        ("❤️", 2),  # a heart in emoji style
        ("❤", 1),  # the same heart as text
        ("🇰🇷🇫🇷", 4),
        ("🏴󠁧󠁢󠁷󠁬󠁳󠁿", 2),  # the flag of Wales, by tags
        ("1️⃣", 2),
        ("שָׁלוֹם", 4),  # Hebrew with vowel points
        ("مُحَمَّد", 4),  # Arabic with vowel marks
        ("ك\u200dك", 2),  # a joiner between letters shapes them and does not merge them
        ("का", 2),  # a spacing vowel sign beside its consonant
        ("ไทย", 3),
        ("\u200b", 0),
    ],
)
def test_display_width_is_the_number_of_columns(text, columns):
    assert display_width(text) == columns


@given(st.text(), st.integers(1, 23), st.booleans())
def test_fit_takes_exactly_the_given_columns(text, columns, right):
    assert display_width(fit(printable(text), columns, right=right)) == columns


def test_fit_never_cuts_a_wide_character_in_half():
    assert fit("고양이", 5) == "고양…"
    assert fit("고양이", 4) == "고… "


@given(st.text())
def test_a_printable_label_has_no_control_or_line_break(text):
    label = printable(text)
    assert len(label.splitlines()) <= 1
    assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in label)
    label.encode("utf-8")


def test_an_escape_sequence_cannot_reach_the_terminal():
    assert printable("\x1b[31mred\x07") == "␛[31mred␇"


def test_a_right_to_left_label_is_isolated_and_keeps_its_order_of_letters():
    assert printable("שלום") == "\u2068שלום\u2069"
    assert fit(printable("שלום"), 3) == "\u2068של…\u2069"
    assert letters(printable("של")) == ["\u2068ש\u2069", "\u2068ל\u2069"]


def test_a_label_cannot_bring_its_own_change_of_direction():
    assert printable("a\u202eb\u2069c") == "abc"


def test_a_mark_without_a_letter_stands_on_a_dotted_circle():
    assert printable("\u0301x") == "◌\u0301x"


def test_a_blank_label_is_visible_and_an_empty_one_is_empty():
    assert printable("  ") == "␣␣"
    assert printable("") == ""
