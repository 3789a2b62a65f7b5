"""Text in terminal columns: combining marks, wide letters, emoji, both writing directions."""

import unicodedata

from regard.system.graphemes import graphemes

EMOJI_STYLE = "\ufe0f"
FIRST_STRONG_ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
DIRECTION_MARKS = (  # the invisible characters of Annex 9 that change the direction
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def display_width(text: str) -> int:
    """The number of terminal columns of a text.

    >>> [display_width(text) for text in ("abc", "고양이", "👩‍💻", "e\u0301")]
    [3, 6, 2, 1]
    """
    return sum(map(_cluster_width, graphemes(text)))


def pad(text: str, width: int) -> str:
    """A text with spaces after it, so many terminal columns wide."""
    return text + " " * (width - display_width(text))


def printable(label: str) -> str:
    """A label that is safe to print in a table: one line, no escapes, direction contained.

    Control characters become control pictures and a blank label a visible space; a mark without
    a letter gets a dotted circle, so that it does not combine with its neighbour. A label with
    right-to-left letters is wrapped in Unicode isolates (Annex 9), which have no width, so that a
    terminal reorders the label alone and not its whole line.

    >>> printable("two\\nlines"), printable(" "), display_width(printable("שלום"))
    ('two␊lines', '␣', 4)
    """
    clean = "".join(map(_visible, unicodedata.normalize("NFC", label)))
    if clean and clean.isspace():
        return "␣" * len(clean)
    return isolated("◌" + clean if clean and _is_mark(clean[0]) else clean)


def token_text(token: str) -> str:
    """A token without the marks of word starts, ▁ and Ġ; these alone are blanks.

    >>> token_text("▁low"), token_text("er"), token_text("Ġcat"), token_text("▁"), token_text("a▁b")
    ('low', 'er', 'cat', ' ', 'a b')
    """
    bare = token.lstrip("▁Ġ")
    return bare.replace("▁", " ") if bare else " " * len(token)


def isolated(text: str) -> str:
    """A text wrapped in isolates if it has right-to-left letters, else unchanged.

    >>> isolated("abc"), len(isolated("שלום"))
    ('abc', 6)
    """
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text):
        return FIRST_STRONG_ISOLATE + text + POP_ISOLATE
    return text


def letters(label: str) -> list[str]:
    """The graphemes of a printable label, to be written one below the other.

    >>> letters("고양이")
    ['고', '양', '이']
    """
    return [isolated(cluster) for cluster in graphemes(_bare(label))]


def fit(label: str, columns: int, *, right: bool = False) -> str:
    """A label padded to a number of columns, or cut there with an ellipsis.

    >>> fit("cat", 5), fit("cat", 5, right=True), fit("caterpillar", 5), fit("고양이", 4)
    ('cat  ', '  cat', 'cate…', '고… ')
    """
    if display_width(label) > columns:
        kept, used = "", 0
        for cluster in graphemes(_bare(label)):
            used += _cluster_width(cluster)
            if used > columns - 1:
                break
            kept += cluster
        label = isolated(kept + "…")
    space = " " * (columns - display_width(label))
    return space + label if right else label + space


def _bare(label: str) -> str:
    return label.replace(FIRST_STRONG_ISOLATE, "").replace(POP_ISOLATE, "")


def _cluster_width(cluster: str) -> int:
    if EMOJI_STYLE in cluster or (len(cluster) > 1 and all(map(_is_regional, cluster[:2]))):
        return 2
    first = _char_width(cluster[0])
    if unicodedata.category(cluster[0]) == "So":  # an emoji with modifiers and joined emoji
        return first
    # Vowels and finals of Hangul are drawn inside their initial; spacing vowel signs beside theirs.
    return first + sum(
        _char_width(char) for char in cluster[1:] if not "\u1160" <= char <= "\u11ff"
    )


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Me", "Mc")


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _visible(char: str) -> str:
    if char < " ":
        return chr(0x2400 + ord(char))
    if char == "\x7f":
        return "␡"
    if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
        return "\ufffd"
    return "" if char in DIRECTION_MARKS else char
