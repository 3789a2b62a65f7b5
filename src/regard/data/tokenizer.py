"""Tokenizers: texts to ids and back."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from regard.core.names import check_name, did_you_mean
from regard.data.files import readable
from regard.data.pairs import Pairs
from regard.data.tokenizer_bpe import BPE
from regard.data.tokenizer_vocabulary import FORMAT, VERSION, Characters, Phonemes, Words

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
