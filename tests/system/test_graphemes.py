"""Graphemes are those of Unicode's Annex 29, in linear time; words keep them whole."""

import time
import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from regard.system.graphemes import graphemes, words

SIGNS = [*"가각ᄀ ᅡ ᆨ👩💻🇰🇷👍🏽❤ab .,\n\r\t", "\u200d", "\ufe0f", "\u0301", "\u0600", "ש", "ָ", *"का्"]
ANY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])), st.text(st.sampled_from(SIGNS), max_size=40)
)


@given(ANY)
def test_graphemes_and_words_together_are_the_text(text):
    assert graphemes(text) == regex.findall(r"\X", text)
    assert "".join(graphemes(text)) == text
    assert "".join(words(text)) == text


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("e\u0301a", [2, 1]),
        (unicodedata.normalize("NFD", "한글"), [3, 3]),
        ("👩‍👩‍👧‍👦", [7]),
        ("🇰🇷🇩🇪", [2, 2]),
        ("👍🏽❤️1️⃣", [2, 2, 3]),
        ("\r\na", [2, 1]),
        ("abc", [1, 1, 1]),
    ],
)
def test_a_grapheme_is_what_a_reader_calls_a_character(text, sizes):
    assert [len(cluster) for cluster in graphemes(text)] == sizes


def test_words_keep_marks_and_emoji_whole():
    assert words(" नमस्ते 👩‍💻 e\u0301tude, 한국어") == [
        " नमस्ते",
        " 👩‍💻",
        " e\u0301tude",
        ",",
        " 한국어",
    ]


def test_a_long_run_of_flag_letters_takes_linear_time():
    flags = "🇰🇷" * 16_000
    start = time.perf_counter()
    assert graphemes(flags) == words(flags) == ["🇰🇷"] * 16_000
    assert time.perf_counter() - start < 2  # quadratic: 20 s
