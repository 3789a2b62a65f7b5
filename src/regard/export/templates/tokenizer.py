"""The tokenizers of this directory, by Python's standard library alone.

tokenizer = Tokenizer("tokenizer.json")
tokenizer.decode(tokenizer.encode("a text"))
"""

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

PATTERNS = "patterns.json"
UNKNOWN = 3  # 0 is padding, 1 begin and 2 end of sequence; the pieces have ids from 4 on


class Tokenizer:
    """Texts to ids and back; README.md describes the file."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        stored = json.loads(path.read_text(encoding="utf-8"))
        self.kind, self.pieces = stored["kind"], stored["state"]["pieces"]
        self.ids = {piece: number for number, piece in enumerate(self.pieces, UNKNOWN + 1)}
        merges = stored["state"].get("merges", [])
        self.ranks = {tuple(merge): rank for rank, merge in enumerate(merges)}
        patterns = json.loads(path.with_name(PATTERNS).read_text(encoding="utf-8"))
        self.pattern = re.compile(patterns[self.kind])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin and end of sequence."""
        if self.kind == "words" or (self.kind == "bpe" and text):
            text = " " + text
        pieces = self.pattern.findall(text)
        if self.kind == "bpe":
            pieces = [piece for word in pieces for piece in self._merged(word)]
        return [self.ids.get(piece, UNKNOWN) for piece in pieces]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        if self.kind == "bpe":
            letters = "".join(self.pieces[n - UNKNOWN - 1] for n in ids if n > UNKNOWN)
            text = bytes(map(BYTES.__getitem__, letters)).decode("utf-8", "replace")
            return text.removeprefix(" ")
        pieces = [
            "\ufffd" if n == UNKNOWN else self.pieces[n - UNKNOWN - 1] for n in ids if n >= UNKNOWN
        ]
        if self.kind == "phonemes":
            return " ".join(pieces)
        text = "".join(pieces)
        return text.removeprefix(" ") if self.kind == "words" else text

    def _merged(self, word: str) -> list[str]:
        """The pieces of a word: the neighbours that were merged first in training, first."""
        pieces = [LETTERS[byte] for byte in word.encode()]
        while len(pieces) > 1:
            pairs = list(pairwise(pieces))
            first = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if first not in self.ranks:
                break
            place = pairs.index(first)
            pieces[place : place + 2] = ["".join(first)]
        return pieces


def _letters() -> dict[int, str]:
    """The letter that byte-level BPE writes for each byte: itself if printable, else U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + rank) for rank, byte in enumerate(others)
    }


LETTERS = _letters()
BYTES = {letter: byte for byte, letter in LETTERS.items()}
