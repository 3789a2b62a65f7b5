"""Tokenizers that cut a text into pieces and number the pieces: characters, words, phonemes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

from regard.core.graphemes import graphemes, words
from regard.data.tokenizer_file import REPLACEMENT, SPECIAL, Stored


class Pieces(Stored):
    """Numbered pieces, from 4 on; a piece that was not met in training is unknown.

    Args:
        pieces: in the order of their ids
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        if not all(isinstance(piece, str) for piece in pieces):
            raise TypeError("pieces must be texts")
        self.pieces = list(pieces)
        self.ids = {piece: number for number, piece in enumerate(self.pieces, len(SPECIAL))}

    @classmethod
    def train(cls, texts: Iterable[str], *, size: int | None, min_count: int) -> Self:
        """Number the pieces of texts, the most frequent first and ties in the order of letters."""
        counts = Counter(piece for text in texts for piece in cls.cut(text))
        ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
        kept = [piece for piece in ranked if counts[piece] >= min_count]
        return cls(kept if size is None else kept[: size - len(SPECIAL)])

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        """From what `state` gave."""
        return cls(state["pieces"])

    def state(self) -> dict[str, Any]:
        """All that must be stored, as JSON."""
        return {"pieces": self.pieces}

    @staticmethod
    def cut(text: str) -> list[str]:
        """The pieces of a text."""
        raise NotImplementedError

    @staticmethod
    def join(pieces: list[str]) -> str:
        """The text of pieces."""
        return "".join(pieces)

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without begin and end."""
        return [self.ids.get(piece, self.unk) for piece in self.cut(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; padding, begin and end are left out."""
        return self.join([piece for piece in self.cuts(ids) if piece])

    def cuts(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id, as `cut` would give it; "" for padding, begin and end."""
        return [self._piece(n) if n >= self.unk else "" for n in map(int, ids)]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One short string for each id, for people to look at."""
        return [
            SPECIAL[number] if number < len(SPECIAL) else self.shown(self._piece(number))
            for number in map(int, ids)
        ]

    @staticmethod
    def shown(piece: str) -> str:
        """A piece as people would like to see it."""
        return piece

    def _piece(self, number: int) -> str:
        if not self.unk <= number < len(self):
            raise ValueError(f"there is no id {number}: this tokenizer has {len(self)}")
        return REPLACEMENT if number == self.unk else self.pieces[number - len(SPECIAL)]


class Characters(Pieces):
    """What a reader calls characters: the grapheme clusters of Unicode Standard Annex 29.

    >>> tokenizer = Characters.train(["👩‍💻한글"], size=None, min_count=1)
    >>> tokenizer.tokens(tokenizer.encode("글👩‍💻!"))
    ['글', '👩‍💻', '<unk>']
    """

    kind = "characters"
    cut = staticmethod(graphemes)


class Words(Pieces):
    """Words and signs, each with the space before it, so that spaces come back as they were.

    >>> tokenizer = Words.train(["A man, a plan."], size=None, min_count=1)
    >>> tokenizer.tokens(tokenizer.encode("A man, a plan."))
    ['A', 'man', ',', 'a', 'plan', '.']
    >>> tokenizer.decode(tokenizer.encode("A plan, a man."))
    'A plan, a man.'
    """

    kind = "words"

    @staticmethod
    def cut(text: str) -> list[str]:
        """The pieces of a text; the first word is given a space, to be like the others."""
        return words(" " + text)

    @staticmethod
    def join(pieces: list[str]) -> str:
        """The text of pieces."""
        return "".join(pieces).removeprefix(" ")

    @staticmethod
    def shown(piece: str) -> str:
        """A word without its space."""
        return piece.strip() or piece


class Phonemes(Pieces):
    """Symbols with a space between them, such as phonemes: `K AE T`.

    >>> tokenizer = Phonemes.train(["K AE T"], size=None, min_count=1)
    >>> tokenizer.decode(tokenizer.encode("T AE K"))
    'T AE K'
    """

    kind = "phonemes"

    @staticmethod
    def cut(text: str) -> list[str]:
        """The symbols of a text."""
        return text.split()

    @staticmethod
    def join(pieces: list[str]) -> str:
        """The symbols with a space between them."""
        return " ".join(pieces)
