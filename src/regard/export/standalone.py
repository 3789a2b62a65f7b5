"""What reads the tokenizers of an export without regard: a file of Python, and its patterns.

The classes of Unicode that the tokenizers need and `re` does not have are written out, as ranges of
characters.
"""

import json
import shutil
from functools import cache
from pathlib import Path

from regard.export.templates.tokenizer import PATTERNS

TEMPLATES = Path(__file__).with_name("templates")

# Unicode Standard Annex 29, table 1c, with the classes of table 2 in angle brackets. Emoji and
# flags stay in one piece.
CLUSTER = (
    r"\r\n|[<GCB=Control>\r\n]|[<GCB=Prepend>]*(?:[<RI>]{1,2}"
    r"|[<GCB=L>]*(?:[<GCB=V>]+|[<GCB=LV>][<GCB=V>]*|[<GCB=LVT>])[<GCB=T>]*|[<GCB=L>]+|[<GCB=T>]+"
    r"|[<ExtPict>](?:[<GCB=Extend>]*\u200d[<ExtPict>])*|[^<GCB=Control><GCB=Prepend>\r\n])"
    r"[<GCB=Extend>\u200d<GCB=SpacingMark>]*|[<GCB=Prepend>]+"
)
# by the kind of a tokenizer; bpe is the pattern of GPT-2
SOURCES = {
    "characters": CLUSTER,
    "words": rf" ?[<w><M>\u200d]+| ?(?![<s>])(?:{CLUSTER})|[<s>]",
    "bpe": "'(?:[stmd]|re|ve|ll)| ?[<L>]+| ?[<N>]+| ?[^<s><L><N>]+|[<s>]+(?![^<s>])|[<s>]+",
    "phonemes": r"\S+",
}


def write_tokenizer_reader(folder: Path) -> None:
    """Write `tokenizer.py` and `patterns.json` beside the tokenizers of a folder, if it has any."""
    kinds = {
        json.loads(path.read_text(encoding="utf-8"))["kind"]
        for path in folder.glob("tokenizer*.json")
    }
    if not kinds:
        return
    shutil.copyfile(TEMPLATES / "tokenizer.py", folder / "tokenizer.py")
    patterns = {kind: pattern(kind) for kind in sorted(kinds)}
    (folder / PATTERNS).write_text(json.dumps(patterns, indent=1), encoding="utf-8", newline="\n")


@cache
def pattern(kind: str) -> str:
    """Return the pattern, for `re`, by which a kind of tokenizer splits texts."""
    import regex  # type: ignore[import-untyped]

    return regex.sub("<([^>]+)>", lambda match: _ranges(match[1]), SOURCES[kind])


@cache
def _ranges(name: str) -> str:
    r"""The characters of a class of Unicode, as ranges: \w, \s, or a property.

    >>> _ranges("RI")
    '\\U0001f1e6-\\U0001f1ff'
    """
    import regex

    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    single = f"\\{name}" if name in ("w", "s") else rf"\p{{{name}}}"
    ends = ((run[0][0], run[0][-1]) for run in regex.finditer(f"{single}+", every))
    return "".join("-".join(f"\\U{ord(end):08x}" for end in dict.fromkeys(pair)) for pair in ends)
