"""Split text into user-perceived characters or into words, without losing anything."""

import re
from functools import cache
from typing import Any

ASCII_WORDS = re.compile(r" ?\w+| ?[^\w\s]|\s")  # the space before a word or sign belongs to it
# \X alone counts back to the first flag letter at each of them, which is quadratic for long runs.
CLUSTER = r"\p{RI}{1,2}[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]*+|\X"
WORDS = rf" ?[\w\p{{M}}\u200d]+| ?(?!\s)(?:{CLUSTER})|\s"


def graphemes(text: str) -> list[str]:
    """Split a text into the extended grapheme clusters of Unicode Standard Annex 29.

    >>> [len(cluster) for cluster in graphemes("e\u0301👩‍💻🇰🇷한")]
    [2, 3, 2, 1]
    """
    if text.isascii() and "\r" not in text:  # one cluster a character
        return list(text)
    return _compiled(CLUSTER).findall(text)


def words(text: str) -> list[str]:
    """Split a text into words and signs, each with the space before it; joined they are the text.

    >>> words(" a man, 두 사람!")
    [' a', ' man', ',', ' 두', ' 사람', '!']
    """
    if text.isascii():
        return ASCII_WORDS.findall(text)
    # Marks and joiners belong to the word before them, and an emoji stays in one piece.
    return _compiled(WORDS).findall(text)


@cache
def _compiled(pattern: str) -> Any:
    import regex  # type: ignore[import-untyped]  # supports \X and \p, which `re` does not

    return regex.compile(pattern)
