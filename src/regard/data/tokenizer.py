"""Tokenizers of characters, words, phonemes and byte pairs: trained, saved and loaded."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from regard.core.names import check_name, did_you_mean
from regard.data.files import readable
from regard.data.pairs import Pairs
from regard.system.files import atomic_file
from regard.system.graphemes import graphemes, words

if TYPE_CHECKING:
    import tokenizers


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


MOST_BYTES = 256 << 20  # of a stored tokenizer


class Tokenizer(Protocol):
    """Converts texts to ids. In every tokenizer 0 is padding, 1 BOS, 2 EOS and 3 unknown."""

    kind: str
    pad: int
    bos: int
    eos: int
    unk: int

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without BOS and EOS."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; padding, BOS and EOS are left out."""

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """One short string for each id, for display."""

    def __len__(self) -> int: ...

    def state(self) -> dict[str, Any]:
        """Everything that must be stored, in types that JSON can represent."""

    def save(self, path: Path) -> None:
        """Write a JSON file for `load_tokenizer`."""


KINDS: dict[str, Any] = {kind.kind: kind for kind in (Characters, Words, BPE, Phonemes)}


def train_tokenizer(
    kind: str, texts: Iterable[str], *, size: int | None = None, min_count: int = 1
) -> Tokenizer:
    """Train a tokenizer on texts.

    >>> tokenizer = train_tokenizer("characters", ["27 september", "9월"])
    >>> tokenizer.decode(tokenizer.encode("7월"))
    '7월'

    Args:
        kind: "characters" (grapheme clusters), "words", "bpe" or "phonemes"
        texts: read once
        size: maximum number of ids, the four special ones included; bpe: 8000 by default
        min_count: rarer pieces are unknown
    """
    check_name("tokenizer", kind, KINDS)
    if size is not None and size < 5:
        raise ValueError(f"size must be at least 5, four of them special, got {size}")
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1, got {min_count}")
    return KINDS[kind].train(texts, size=size, min_count=min_count)


def train_tokenizers(
    pairs: Pairs,
    source: str = "characters",
    target: str = "characters",
    *,
    joint: bool = False,
    size: int | None = None,
    min_count: int = 1,
) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of both sides: two, or one that both share.

    Args:
        pairs: pairs of texts
        source: the kind of the source's tokenizer
        target: the kind of the target's
        joint: train one tokenizer on both sides, and return it twice
        size: as in `train_tokenizer`, for each
        min_count: as in `train_tokenizer`
    """
    if joint:
        if source != target:
            raise ValueError(f"a joint tokenizer is of one kind, got {source!r} and {target!r}")
        both = chain(pairs.sources, pairs.targets)
        shared = train_tokenizer(source, both, size=size, min_count=min_count)
        return shared, shared
    sides: Sequence[tuple[str, Sequence[str]]] = ((source, pairs.sources), (target, pairs.targets))
    one, two = (train_tokenizer(kind, t, size=size, min_count=min_count) for kind, t in sides)
    return one, two


def load_or_train_tokenizer(path: Path | None, train: Callable[[], Tokenizer]) -> Tokenizer:
    """The tokenizer stored in a run, or a new one if there is no path.

    A resumed run keeps its tokenizers: ids learned by the model must not change with the data.
    """
    return train() if path is None else load_tokenizer(path)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a tokenizer that `save` has written. The file is not trusted: every part is validated.

    Raises:
        ValueError: if the file is something else, too large, or of another version
    """
    path = readable(path)
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} is too large for a tokenizer: more than {MOST_BYTES:,} bytes")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(stored, ensure_ascii=False).encode()  # no half surrogate pairs
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a tokenizer: it is not JSON in UTF-8") from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise ValueError(f"{path} is not a tokenizer of regard")
    if stored.get("version") != VERSION:
        raise ValueError(
            f"{path} is of version {stored.get('version')}, this regard reads version {VERSION}"
        )
    kind = str(stored.get("kind"))
    if kind not in KINDS:
        raise ValueError(f"{path}: unknown tokenizer {kind!r}{did_you_mean(kind, KINDS)}")
    load: Callable[[dict[str, Any]], Tokenizer] = KINDS[kind].load
    try:
        return load(stored["state"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: not the state of {kind}: {error}") from error
