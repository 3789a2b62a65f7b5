"""Byte-pair encoding on bytes, by the `tokenizers` library: no text is unknown to it."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from regard.data.tokenizer_vocabulary import SPECIAL, StoredTokenizer, check_pieces

if TYPE_CHECKING:
    import tokenizers

BYTES = 256

CONTINUATION = "‥"
"""The mark of a displayed piece that begins inside a character."""


class BPE(StoredTokenizer):
    """Pieces of words, found by merging frequent neighbours. Sennrich et al. 2016, algorithm 1.

    It starts from bytes (Radford et al. 2019, 2.2), so that every text can be encoded and decoded
    exactly. The ids of the library are shifted by the four special ones, which therefore cannot
    occur in a text.

    >>> bpe = BPE.train(["low lower lowest"] * 9, size=280, min_count=1)
    >>> bpe.decode(bpe.encode("한국어 lower 🙂"))
    '한국어 lower 🙂'

    Args:
        pieces: in the order of the ids, in the letters that byte-level BPE writes for bytes
        merges: pairs of pieces, in the order of learning
    """

    kind = "bpe"

    def __init__(self, pieces: list[str], merges: list[tuple[str, str]]) -> None:
        from tokenizers import models

        self.pieces, self.merges = pieces, merges
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        self.model = _byte_level(models.BPE(vocabulary, merges))

    @classmethod
    def train(cls, texts: Iterable[str], *, size: int | None, min_count: int) -> Self:
        """Learn the merges from texts."""
        from tokenizers import models, pre_tokenizers, trainers

        wanted = 8000 if size is None else size
        if wanted < BYTES + len(SPECIAL):
            raise ValueError(
                f"size of bpe must be at least {BYTES + len(SPECIAL)}, one id for each byte and "
                f"{len(SPECIAL)} special ones, got {size}"
            )
        model = _byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=wanted - len(SPECIAL),
            min_frequency=min_count,
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
        model.train_from_iterator((" " + text for text in texts), trainer)
        learned = json.loads(model.to_str())["model"]
        pieces = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
        return cls(pieces, [(left, right) for left, right in learned["merges"]])

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        """The inverse of `state`. Every part is validated: the library would panic.

        Raises:
            TypeError: if it is anything else
        """
        pieces = check_pieces(state["pieces"])
        known = set(pieces)
        if not known >= set(_BYTE) or not all(set(piece) <= set(_BYTE) for piece in pieces):
            raise TypeError("the pieces should consist of the letters for bytes, all included")
        merges = [tuple(merge) for merge in state["merges"]]
        for merge in merges:
            if len(merge) != 2 or not {*merge, "".join(merge)} <= known:
                raise TypeError("a merge should be two pieces that make a third")
        return cls(pieces, merges)

    def state(self) -> dict[str, Any]:
        return {"pieces": self.pieces, "merges": [list(merge) for merge in self.merges]}

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without BOS and EOS; the first word is given a space."""
        if not text:
            return []  # a space alone would be read as a word
        return [number + len(SPECIAL) for number in self.model.encode(" " + text).ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; invalid UTF-8, which a model may write, becomes U+FFFD."""
        numbers = [self._checked(int(number)) - len(SPECIAL) for number in ids]
        text = self.model.decode([n for n in numbers if n >= 0], skip_special_tokens=False)
        return text.removeprefix(" ")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One short string for each id: a space is ▁, a character is in the piece it begins in.

        A piece that begins inside a character is marked with `CONTINUATION`. A byte that is not
        part of any character is a number, as in <EA>.
        """
        checked = [self._checked(number) for number in map(int, ids)]
        pieces = [b"" if n < len(SPECIAL) else self._bytes(n) for n in checked]
        return [
            SPECIAL[number] if number < len(SPECIAL) else text
            for number, text in zip(checked, split_characters(pieces), strict=True)
        ]

    def _bytes(self, number: int) -> bytes:
        return piece_bytes(self.pieces[number - len(SPECIAL)])


def _byte_level(model: Any) -> "tokenizers.Tokenizer":
    import tokenizers
    from tokenizers import decoders, pre_tokenizers

    whole = tokenizers.Tokenizer(model)
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = decoders.ByteLevel()
    return whole


def piece_bytes(piece: str) -> bytes:
    """The bytes that a piece of byte-level BPE stands for.

    Raises:
        KeyError: a letter that no byte is written with
    """
    return bytes(_BYTE[char] for char in piece)


def split_characters(pieces: list[bytes]) -> list[str]:
    """The characters that begin in each piece of a text.

    >>> text = "도쿄에".encode()
    >>> split_characters([text[:4], text[4:5], text[5:], b"\\xed"])
    ['도쿄', '‥', '‥에', '<ED>']
    """
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    begins = [0]  # of the characters, in bytes
    for char in text:
        begins.append(begins[-1] + len(char.encode("utf-8", "surrogateescape")))
    shown, at, start = [], 0, 0
    for piece in pieces:
        end = start + len(piece)
        inside = begins[at] > start and bool(piece)
        first = at
        while begins[at] < end:
            at += 1
        shown.append(CONTINUATION * inside + "".join(map(_visible, text[first:at])))
        start = end
    return shown


def _visible(char: str) -> str:
    return f"<{ord(char) - 0xDC00:02X}>" if "\udc80" <= char <= "\udcff" else char.replace(" ", "▁")


def _letters() -> dict[str, int]:
    """The letter that byte-level BPE writes for each byte: itself if printable, else U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(BYTES) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {
        chr(0x100 + rank): byte for rank, byte in enumerate(hidden)
    }


_BYTE = _letters()
