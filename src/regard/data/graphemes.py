"""Texts cut into what a reader calls characters, or into words; nothing is lost in between."""

import re
from functools import cache
from typing import Any

WORDS = re.compile(r" ?\w+| ?[^\w\s]|\s")  # a word or a sign with the space before it; else blanks


def graphemes(text: str) -> list[str]:
    """Cut a text into the extended grapheme clusters of Unicode Standard Annex 29.

    >>> [len(cluster) for cluster in graphemes("e\u0301👩‍💻🇰🇷한")]
    [2, 3, 2, 1]
    """
    if text.isascii() and "\r" not in text:  # one cluster a character
        return list(text)
    return _unicode(r"\X").findall(text)


def words(text: str) -> list[str]:
    """Cut a text into words and signs, each with the space before it; together they are the text.

    >>> words(" a man, 두 사람!")
    [' a', ' man', ',', ' 두', ' 사람', '!']
    """
    if text.isascii():
        return WORDS.findall(text)
    # Marks and joiners belong to the word before them, and an emoji stays in one piece.
    return _unicode(r" ?[\w\p{M}\u200d]+| ?(?:(?!\s)\X)|\s").findall(text)


@cache
def _unicode(pattern: str) -> Any:
    import regex  # type: ignore[import-untyped]  # knows \X and \p, which `re` does not

    return regex.compile(pattern)
