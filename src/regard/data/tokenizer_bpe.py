"""Byte-pair encoding on bytes, by the `tokenizers` library: no text is unknown to it."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from regard.data.tokenizer_file import SPECIAL, Stored

if TYPE_CHECKING:
    import tokenizers

BYTES = 256

GOES_ON = "‥"
"""What a piece is shown with that begins inside of a character."""


class BPE(Stored):
    """Pieces of words, found by merging frequent neighbours. Sennrich et al. 2016, algorithm 1.

    It starts from bytes (Radford et al. 2019, 2.2), so that every text can be encoded and comes
    back as it was. The ids of the library are shifted by the four special ones, which therefore
    cannot be met in a text.

    >>> bpe = BPE.train(["low lower lowest"] * 9, size=280, min_count=1)
    >>> bpe.decode(bpe.encode("한국어 lower 🙂"))
    '한국어 lower 🙂'

    Args:
        model: a trained byte-level tokenizer of the library, without special tokens
    """

    kind = "bpe"

    def __init__(self, model: "tokenizers.Tokenizer") -> None:
        self.model = model
        self.size = model.get_vocab_size()

    @classmethod
    def train(cls, texts: Iterable[str], *, size: int | None, min_count: int) -> Self:
        """Learn the merges from texts."""
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers, trainers

        wanted = 8000 if size is None else size
        if wanted < BYTES + len(SPECIAL):
            raise ValueError(
                f"size of bpe must be at least {BYTES + len(SPECIAL)}, a byte each and the "
                f"special ones, got {size}"
            )
        model = tokenizers.Tokenizer(models.BPE())
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=wanted - len(SPECIAL),
            min_frequency=min_count,
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
        model.train_from_iterator((" " + text for text in texts), trainer)
        return cls(model)

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        """From what `state` gave."""
        import tokenizers

        try:
            return cls(tokenizers.Tokenizer.from_str(json.dumps(state["model"])))
        except KeyError:
            raise
        except Exception as error:  # the library raises nothing more precise
            raise TypeError(str(error)) from error

    def state(self) -> dict[str, Any]:
        """All that must be stored, as JSON."""
        return {"model": json.loads(self.model.to_str())}

    def __len__(self) -> int:
        return len(SPECIAL) + self.size

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without begin and end; the first word is given a space."""
        if not text:
            return []  # a space alone would be read as a word
        return [number + len(SPECIAL) for number in self.model.encode(" " + text).ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8, which a model may write, become U+FFFD."""
        numbers = [self._checked(int(number)) - len(SPECIAL) for number in ids]
        text = self.model.decode([n for n in numbers if n >= 0], skip_special_tokens=False)
        return text.removeprefix(" ")

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One short string for each id: a space is ▁, and a character is in the piece it begins in.

        A piece that goes on with the bytes of a character begins with `GOES_ON`. A byte that is
        part of no character is a number, as in <EA>.
        """
        checked = [self._checked(number) for number in map(int, ids)]
        pieces = [b"" if n < len(SPECIAL) else self._bytes(n) for n in checked]
        shown = _cut(pieces)
        return [
            SPECIAL[number] if number < len(SPECIAL) else text
            for number, text in zip(checked, shown, strict=True)
        ]

    def _bytes(self, number: int) -> bytes:
        return bytes(_BYTE[char] for char in self.model.id_to_token(number - len(SPECIAL)) or "")

    def _checked(self, number: int) -> int:
        if not 0 <= number < len(self):
            raise ValueError(f"there is no id {number}: this tokenizer has {len(self)}")
        return number


def _cut(pieces: list[bytes]) -> list[str]:
    """The characters that begin in each piece of a text.

    >>> _cut(["도쿄".encode()[:4], "도쿄".encode()[4:5], "쿄에".encode()[2:], b"\\xed"])
    ['도쿄', '‥', '‥에', '<ED>']
    """
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    begins = [0]  # of the characters, in bytes
    for char in text:
        begins.append(begins[-1] + len(char.encode("utf-8", "surrogateescape")))
    shown, at, start = [], 0, 0
    for piece in pieces:
        end = start + len(piece)
        goes_on = begins[at] > start and bool(piece)
        first = at
        while begins[at] < end:
            at += 1
        shown.append(GOES_ON * goes_on + "".join(map(_visible, text[first:at])))
        start = end
    return shown


def _visible(char: str) -> str:
    return f"<{ord(char) - 0xDC00:02X}>" if "\udc80" <= char <= "\udcff" else char.replace(" ", "▁")


def _letters() -> dict[str, int]:
    """The letter byte-level BPE writes for each byte: itself if it is visible, else U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(BYTES) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {
        chr(0x100 + rank): byte for rank, byte in enumerate(hidden)
    }


_BYTE = _letters()
