"""Guided alignment: a head of the encoder–decoder attention learns given word alignments.

It is the multi-task training of Garg et al. 2019, section 4.2. Alignments link words; they are
mapped to the pieces of the tokenizers here, and maps of pieces are merged to words by
`alignment_scores.py` in the same way.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.analysis import Gold
from regard.attention.observer import Recorder, observe
from regard.attention.record import CallRecord
from regard.core.score import precise
from regard.data import Batch, Pairs, Tokenizer
from regard.data.tokenizer import VocabularyTokenizer
from regard.decoding.search import encoder_decoder_attentions

HEAD = 0  # which one is guided; before training, all are alike


def word_numbers(tokenizer: Tokenizer | None, text: Any) -> list[int]:
    """The word of each piece of a text, from 0: words are what spaces separate.

    Characters and frames are words of their own.

    >>> from regard.data import train_tokenizer
    >>> word_numbers(train_tokenizer("words", ["a man"]), "a man, a plan")
    [0, 1, 1, 2, 3]
    """
    if tokenizer is None:
        return list(range(len(text)))
    if isinstance(tokenizer, VocabularyTokenizer):
        pieces = tokenizer.split(text)
        if tokenizer.kind != "words":
            return list(range(len(pieces)))
    else:
        pieces = [piece.replace("▁", " ") for piece in tokenizer.tokens(tokenizer.encode(text))]
    numbers, word, after_space = [], -1, True
    for piece in pieces:
        for character in piece:
            word += after_space and not character.isspace()
            after_space = character.isspace()
        numbers.append(word + after_space)  # a space belongs to the word that follows
    return [min(number, word) for number in numbers]


def check_links(gold: Gold, number: int, source: int, target: int) -> None:
    """Raise `ValueError` if pair `number`, from 0, has a link outside of its words."""
    for i, j in gold.possible:
        if i >= source or j >= target:
            raise ValueError(
                f"pair {number + 1}: the link {i}-{j}, counted from 0, is outside of its {source} "
                f"source and {target} target words"
            )


def guided_attention(model: nn.Module) -> nn.Module:
    """The attention whose head `HEAD` is guided: that of the penultimate layer, or the only one.

    Raises:
        ValueError: for a model without encoder–decoder attention
    """
    found = list(encoder_decoder_attentions(model))
    if not found:
        raise ValueError(
            "alignments need a model with encoder–decoder attention, and this one has none"
        )
    return found[max(len(found) - 2, 0)]


class _Recorder(Recorder):
    """Keeps the calls of some modules."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__()
        self.modules = set(modules)

    def notify(self, call: CallRecord) -> None:
        if call.module in self.modules:
            self.calls.append(call)


@contextmanager
def recorded(modules: Iterable[nn.Module]) -> Iterator[list[CallRecord]]:
    """Record the calls of these modules until the block ends."""
    recorder = _Recorder(modules)
    with observe(recorder):
        yield recorder.calls


def joined_map(calls: Iterable[CallRecord]) -> Tensor:
    """The map (batch, heads, T, S) of one pass over a target, be it one call or one for each step.

    It is before dropout and differentiable.
    """
    rows = []
    for call in calls:
        weights = call.map.dense()
        rows.append(weights.reshape(len(weights), -1, *weights.shape[-2:]))
    if not rows:
        raise ValueError(
            "no encoder–decoder attention was recorded: set training.compile = false for guided "
            "alignment"
        )
    return torch.cat(rows, dim=2)


class GuidedAlignment:
    """The alignments of the training pairs, and their loss.

        L = −Σₜ Σₛ Gₜₛ log Aₜₛ,  Gₜₛ = 1 / (links of t) if t and s are linked, else 0

    over the target pieces t that have links; A is the map of the guided head. Garg et al. 2019,
    section 4.2; the mean over the target is taken with that of the translation loss.

    Args:
        links: of each pair, (n, 2) source and target pieces
    """

    def __init__(self, links: Sequence[np.ndarray]) -> None:
        self.links = links

    @classmethod
    def of(
        cls, gold: Sequence[Gold], pairs: Pairs, source: Tokenizer | None, target: Tokenizer
    ) -> "GuidedAlignment":
        """The alignments of words as those of the pieces of two tokenizers.

        Every piece of a word is linked to every piece of the words that it is linked to.

        Args:
            gold: of each pair; possible links count like sure ones

        Raises:
            ValueError: for a link outside of its pair, with the number of the pair
        """
        links = []
        for number, (own, (text, written)) in enumerate(zip(gold, pairs, strict=True)):
            keys, queries = word_numbers(source, text), word_numbers(target, written)
            words = np.zeros((max(queries, default=-1) + 1, max(keys, default=-1) + 1), bool)
            check_links(own, number, words.shape[1], words.shape[0])
            for i, j in own.possible:
                words[j, i] = True
            t, s = words[np.ix_(queries, keys)].nonzero()
            links.append(np.stack((s, t), axis=1).astype(np.int32))
        return cls(links)

    def loss(self, calls: Iterable[CallRecord], batch: Batch) -> Tensor:
        """The loss of a batch, summed.

        Args:
            calls: of the guided attention, for the whole target
        """
        weights = joined_map(calls)[:, HEAD]  # (B, T, S)
        weights = weights.to(precise(weights.dtype))
        linked = torch.zeros(weights.shape, dtype=torch.bool)
        for row, number in enumerate(batch.index.tolist()):
            source, target = self.links[number].T
            linked[row, target, source] = True
        share = linked.to(weights)
        share /= share.sum(-1, keepdim=True).clamp(min=1.0)
        floor = torch.finfo(weights.dtype).tiny  # a sparse map may have a weight of 0
        return -(share * weights.clamp(min=floor).log()).sum()
