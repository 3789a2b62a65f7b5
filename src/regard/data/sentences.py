"""Texts split into sentences, and documents as ids."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.tokenizer import CONTINUATION, Tokenizer, VocabularyTokenizer

END = re.compile(r"[.!?…。！？][\"'”’)\]]*(?=\s)")  # with closing quotes and brackets


def sentences(text: str) -> list[str]:
    """Split a text after `.`, `!`, `?` and the like, if a space follows, or at line breaks.

    A text with line breaks has one sentence per line, as in corpora.

    >>> sentences("It is long. Is it good? 네!")
    ['It is long.', 'Is it good?', '네!']
    >>> sentences("dr . no is a film .\\nit is old .")
    ['dr . no is a film .', 'it is old .']
    """
    if "\n" in text.strip():
        parts = text.split("\n")
    else:
        ends = [0, *(match.end() for match in END.finditer(text)), len(text)]
        parts = [text[start:end] for start, end in pairwise(ends)]
    return [part.strip() for part in parts if part.strip()]


class Document(NamedTuple):
    """A document as ids: all words, and the lengths of the sentences."""

    ids: np.ndarray  # (words,)
    lengths: np.ndarray  # (sentences,), each at least 1

    def sentences(self) -> list[list[int]]:
        """The ids of each sentence."""
        return [part.tolist() for part in np.split(self.ids, np.cumsum(self.lengths)[:-1])]


def encode_document(
    text: str, tokenizer: Tokenizer, *, max_words: int = 50, max_sentences: int = 60
) -> Document:
    """The ids of a text, sentence by sentence.

    A sentence of more than `max_words` is continued in another one; of a document of more than
    `max_sentences` the end is kept, where reviews state their verdict.

    >>> from regard.data import train_tokenizer
    >>> tokenizer = train_tokenizer("words", ["a b c"])
    >>> encode_document("a b c. b.", tokenizer, max_words=2).sentences()
    [[4, 5], [6, 3], [5, 3]]
    """
    pieces: list[list[int]] = []
    for sentence in sentences(text):
        ids = tokenizer.encode(sentence)
        pieces += [ids[start : start + max_words] for start in range(0, len(ids), max_words)]
    pieces = pieces[-max_sentences:] or [[tokenizer.unk]]
    lengths = np.array([len(piece) for piece in pieces], np.int32)
    return Document(np.concatenate([np.array(piece, np.int32) for piece in pieces]), lengths)


def document_pieces(
    text: str, tokenizer: Tokenizer, *, max_words: int = 50, max_sentences: int = 60
) -> list[list[str]]:
    """The part of the text for each id of `encode_document`, with the space before it.

    >>> from regard.data import train_tokenizer
    >>> document_pieces("A rare film. Good.", train_tokenizer("words", ["a film"]), max_words=3)
    [['A', ' rare', ' film'], ['.'], ['Good', '.']]
    """
    pieces: list[list[str]] = []
    for sentence in sentences(text):
        if isinstance(tokenizer, VocabularyTokenizer):
            parts = tokenizer.split(sentence)
        else:
            parts = [
                part.removeprefix(CONTINUATION).replace("▁", " ")
                for part in tokenizer.tokens(tokenizer.encode(sentence))
            ]
        parts[:1] = [part.lstrip() for part in parts[:1]]
        pieces += [parts[start : start + max_words] for start in range(0, len(parts), max_words)]
    return pieces[-max_sentences:] or [[""]]


class DocumentBatch(NamedTuple):
    """A batch of documents, padded with 0."""

    words: Tensor  # (B, S, W)
    word_lengths: Tensor  # (B, S), 0 for padding
    sentence_lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


def collate_documents(documents: Sequence[Document], labels: Sequence[int]) -> DocumentBatch:
    """Pad documents to a batch.

    >>> first, second = Document(np.array([4, 5, 6]), np.array([2, 1])), Document(
    ...     np.array([7]), np.array([1]))
    >>> batch = collate_documents([first, second], [1, 0])
    >>> batch.words.tolist(), batch.word_lengths.tolist()
    ([[[4, 5], [6, 0]], [[7, 0], [0, 0]]], [[2, 1], [1, 0]])
    """
    counts = np.array([len(document.lengths) for document in documents])
    lengths = np.zeros((len(documents), counts.max()), np.int64)
    lengths[np.arange(counts.max()) < counts[:, None]] = np.concatenate(
        [document.lengths for document in documents]
    )
    words = np.zeros((*lengths.shape, lengths.max()), np.int64)
    words[np.arange(lengths.max()) < lengths[:, :, None]] = np.concatenate(
        [document.ids for document in documents]
    )
    return DocumentBatch(
        torch.from_numpy(words),
        torch.from_numpy(lengths),
        torch.from_numpy(counts),
        torch.tensor(labels),
    )
