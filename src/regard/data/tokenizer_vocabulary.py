"""Tokenizers with a vocabulary of whole pieces: characters, words, phonemes."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from regard.system.files import atomic_file
from regard.system.graphemes import graphemes, words

FORMAT, VERSION = "regard tokenizer", 2
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")  # ids 0, 1, 2, 3; how they are displayed
REPLACEMENT = "\ufffd"  # what an unknown piece decodes to


class StoredTokenizer:
    """Special ids and storage as JSON, which all tokenizers share."""

    kind: str
    pad, bos, eos, unk = range(4)

    def state(self) -> dict[str, Any]:
        """Everything that must be stored, in types that JSON can represent."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write a JSON file for `load_tokenizer`, atomically."""
        content = {"format": FORMAT, "version": VERSION, "kind": self.kind, "state": self.state()}
        with atomic_file(path) as part:
            part.write_text(
                json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8", newline="\n"
            )

    def __len__(self) -> int:
        raise NotImplementedError

    def _checked(self, number: int) -> int:
        if not 0 <= number < len(self):
            raise ValueError(f"there is no id {number}: this tokenizer has {len(self)}")
        return number


class VocabularyTokenizer(StoredTokenizer):
    """Pieces numbered from 4 on; a piece that did not occur in training is unknown.

    Args:
        pieces: in the order of their ids
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = check_pieces(pieces)
        self.ids = {piece: number for number, piece in enumerate(self.pieces, len(SPECIAL))}

    @classmethod
    def train(cls, texts: Iterable[str], *, size: int | None, min_count: int) -> Self:
        """Number the pieces of texts, the most frequent first and ties in alphabetical order."""
        counts = Counter(piece for text in texts for piece in cls.split(text))
        ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
        kept = [piece for piece in ranked if counts[piece] >= min_count]
        return cls(kept if size is None else kept[: size - len(SPECIAL)])

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        """The inverse of `state`."""
        return cls(state["pieces"])

    def state(self) -> dict[str, Any]:
        return {"pieces": self.pieces}

    @staticmethod
    def split(text: str) -> list[str]:
        """The pieces of a text."""
        raise NotImplementedError

    @staticmethod
    def join(pieces: list[str]) -> str:
        """The text of pieces."""
        return "".join(pieces)

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without BOS and EOS."""
        return [self.ids.get(piece, self.unk) for piece in self.split(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; padding, BOS and EOS are left out."""
        return self.join([piece for piece in self.decode_pieces(ids) if piece])

    def decode_pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id, as `split` returns it; "" for padding, BOS and EOS."""
        return [self._piece(n) if n >= self.unk else "" for n in map(int, ids)]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One short string for each id, for display."""
        return [
            SPECIAL[number] if number < len(SPECIAL) else self.display(self._piece(number))
            for number in map(int, ids)
        ]

    @staticmethod
    def display(piece: str) -> str:
        """A piece as it is displayed."""
        return piece

    def _piece(self, number: int) -> str:
        self._checked(number)
        return REPLACEMENT if number == self.unk else self.pieces[number - len(SPECIAL)]


class Characters(VocabularyTokenizer):
    """User-perceived characters: the grapheme clusters of Unicode Standard Annex 29.

    >>> tokenizer = Characters.train(["👩‍💻한글"], size=None, min_count=1)
    >>> tokenizer.tokens(tokenizer.encode("글👩‍💻!"))
    ['글', '👩‍💻', '<unk>']
    """

    kind = "characters"
    split = staticmethod(graphemes)


class Words(VocabularyTokenizer):
    """Words and signs, each with the space before it, so that decoding restores spaces.

    >>> tokenizer = Words.train(["A man, a plan."], size=None, min_count=1)
    >>> tokenizer.tokens(tokenizer.encode("A man, a plan."))
    ['A', 'man', ',', 'a', 'plan', '.']
    >>> tokenizer.decode(tokenizer.encode("A plan, a man."))
    'A plan, a man.'
    """

    kind = "words"

    @staticmethod
    def split(text: str) -> list[str]:
        """The words of a text; the first one is given a space, like the others."""
        return words(" " + text)

    @staticmethod
    def join(pieces: list[str]) -> str:
        return "".join(pieces).removeprefix(" ")

    @staticmethod
    def display(piece: str) -> str:
        """A word without its space."""
        return piece.strip() or piece


class Phonemes(VocabularyTokenizer):
    """Symbols separated by spaces, such as phonemes: `K AE T`.

    >>> tokenizer = Phonemes.train(["K AE T"], size=None, min_count=1)
    >>> tokenizer.decode(tokenizer.encode("T AE K"))
    'T AE K'
    """

    kind = "phonemes"

    @staticmethod
    def split(text: str) -> list[str]:
        return text.split()

    @staticmethod
    def join(pieces: list[str]) -> str:
        return " ".join(pieces)


def check_pieces(pieces: Any) -> list[str]:
    """A vocabulary: distinct strings.

    Raises:
        TypeError: if it is anything else
    """
    if not isinstance(pieces, list | tuple) or not all(isinstance(p, str) for p in pieces):
        raise TypeError("the vocabulary should be a list of strings")
    if len(set(pieces)) != len(pieces):
        raise TypeError("the vocabulary should not have duplicates")
    return list(pieces)
