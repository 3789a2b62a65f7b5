"""How many columns of a terminal a text takes: marks, wide letters, emoji, either direction."""

import unicodedata
from collections.abc import Iterator

ZERO_WIDTH_JOINER = "\u200d"
EMOJI_STYLE = "\ufe0f"
FIRST_STRONG_ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
DIRECTION_MARKS = (  # every character of Annex 9 that changes direction and is not seen
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def graphemes(text: str) -> Iterator[str]:
    """Split a text into what a reader calls characters, each with its marks and joined emoji.

    A working subset of the extended grapheme clusters of Unicode Standard Annex 29: marks, Hangul
    jamo, emoji modifiers, tags and ZWJ sequences, and pairs of regional indicators.

    >>> list(graphemes("e\u0301a")) == ["e\u0301", "a"]
    True
    >>> [len(g) for g in graphemes("👩‍💻🇰🇷!")]
    [3, 2, 1]
    """
    cluster = ""
    for char in text:
        if cluster and not _joins(cluster, char):
            yield cluster
            cluster = ""
        cluster += char
    if cluster:
        yield cluster


def display_width(text: str) -> int:
    """Count the terminal columns of a text.

    >>> [display_width(text) for text in ("abc", "고양이", "👩‍💻", "e\u0301")]
    [3, 6, 2, 1]
    """
    return sum(map(_cluster_width, graphemes(text)))


def printable(label: str) -> str:
    """Make a label safe to print in a table: one line, no escapes, directions that stay inside.

    Control characters become pictures of themselves and a blank label a visible space; a mark
    without a letter gets the dotted circle, lest it settle on its neighbour. A label with
    right-to-left letters is wrapped in Unicode isolates (Annex 9), so that a terminal that
    reorders text reorders the label alone, not the row it stands in. The isolates have no width.

    >>> printable("two\\nlines"), printable(" "), display_width(printable("שלום"))
    ('two␊lines', '␣', 4)
    """
    clean = "".join(map(_visible, unicodedata.normalize("NFC", label)))
    if clean and clean.isspace():
        return "␣" * len(clean)
    return isolated("◌" + clean if clean and _is_mark(clean[0]) else clean)


def isolated(text: str) -> str:
    """Wrap a text that has right-to-left letters in isolates; any other stays as it is.

    >>> isolated("abc"), len(isolated("שלום"))
    ('abc', 6)
    """
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text):
        return FIRST_STRONG_ISOLATE + text + POP_ISOLATE
    return text


def letters(label: str) -> list[str]:
    """List the graphemes of a printable label, to be set one below the other.

    >>> letters("고양이")
    ['고', '양', '이']
    """
    return [isolated(cluster) for cluster in graphemes(_bare(label))]


def fit(label: str, columns: int, *, right: bool = False) -> str:
    """Pad a label to a number of columns, or cut it there with an ellipsis.

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


def _joins(cluster: str, char: str) -> bool:
    if char == ZERO_WIDTH_JOINER:
        return True
    if _is_mark(char):
        return True
    if _is_modifier(char) or cluster[-1] == ZERO_WIDTH_JOINER:  # these change emoji alone
        return unicodedata.category(cluster[0]) == "So"
    if "\u1160" <= char <= "\u11ff":  # vowels and finals of Hangul follow their initial
        return "\u1100" <= cluster[0] <= "\u115f" or "\uac00" <= cluster[0] <= "\ud7a3"
    return _is_regional(char) and len(cluster) == 1 and _is_regional(cluster)


def _cluster_width(cluster: str) -> int:
    if EMOJI_STYLE in cluster or (len(cluster) == 2 and all(map(_is_regional, cluster))):
        return 2
    first = _char_width(cluster[0])
    # A spacing vowel sign stands beside its consonant and takes a column of its own.
    beside = sum(unicodedata.category(char) == "Mc" for char in cluster[1:])
    return first + beside if first else max(map(_char_width, cluster))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Me", "Mc")


def _is_modifier(char: str) -> bool:  # skin tones, and the tag letters of flags such as Wales'
    return "\U0001f3fb" <= char <= "\U0001f3ff" or "\U000e0020" <= char <= "\U000e007f"


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
