"""Maps and traces of words, merged from those of their pieces."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.core.map import AttentionMap
from regard.data.tokenizer import CONTINUATION
from regard.trace import Trace

STARTS = ("▁", "Ġ", " ")
"""Prefixes of pieces that begin a word, in tokenizers that mark these."""


def word_groups(tokens: Sequence[str]) -> list[int]:
    """The number of the word that each piece belongs to.

    Pieces are marked as by WordPiece ("##ing" continues a word), by subword-nmt ("play@@" is
    continued), or by SentencePiece and byte-level BPE ("▁play", "Ġplay" and " play" begin a word).
    A token in angle or square brackets is a word of its own. Without marks each token is a word.

    >>> word_groups(["[CLS]", "play", "##ing", "it", "[SEP]"])
    [0, 1, 1, 2, 3]
    >>> word_groups(["▁play", "ing", "▁it", "</s>"])
    [0, 0, 1, 2]
    """
    continued = any(token.startswith("##") for token in tokens)
    joined = any(token.endswith("@@") for token in tokens)
    started = any(token.startswith(STARTS) for token in tokens)
    groups: list[int] = []
    for index, token in enumerate(tokens):
        special = _is_special(token)
        before = tokens[index - 1] if index else ""
        if special or not index or _is_special(before):
            goes_on = False
        elif continued:
            goes_on = token.startswith("##")
        elif joined:
            goes_on = before.endswith("@@")
        else:
            goes_on = started and not token.startswith(STARTS)
        groups.append((groups[-1] if groups else -1) + (not goes_on))
    return groups


def word_labels(tokens: Sequence[str], groups: Sequence[int]) -> list[str]:
    """The words that pieces form.

    >>> word_labels(["▁play", "ing", "▁it"], [0, 0, 1])
    ['playing', 'it']
    >>> word_labels(["▁도쿄", "‥", "‥에"], [0, 0, 0])
    ['도쿄에']
    """
    words = [""] * (max(groups, default=-1) + 1)
    for token, group in zip(tokens, groups, strict=True):
        token = token.removeprefix("##").removeprefix(CONTINUATION).removesuffix("@@")
        words[group] += token.lstrip("".join(STARTS))
    return words


def merge_words(weights: Tensor, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
    """A map of words: the sum over the pieces of a key, the mean over the pieces of a query.

    Clark et al. 2019, section 4.1. Rows keep their sum.

    >>> merge_words(torch.tensor([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]]), [0, 0], [0, 0, 1])
    tensor([[0.6500, 0.3500]])

    Args:
        weights: (..., M, N)
        queries: the word of each of the M queries, as `word_groups` numbers them
        keys: the word of each of the N keys

    Returns: (..., words of the queries, words of the keys)
    """
    M, N = weights.shape[-2:]
    if len(queries) != M or len(keys) != N:
        raise ValueError(
            f"weights {tuple(weights.shape)} need the words of {M} queries and {N} keys, got "
            f"{len(queries)} and {len(keys)}"
        )
    rows, columns = _membership(queries, weights), _membership(keys, weights)  # (words, pieces)
    rows = rows / rows.sum(-1, keepdim=True).clamp(min=1.0)
    return rows @ weights @ columns.mT


def by_words(trace: Trace) -> Trace:
    """The trace with every map merged to words: keys summed, queries averaged. See `merge_words`.

    Positions of a side without labels stay as they are.

    >>> maps = {"self": torch.full((3, 3), 1 / 3)}
    >>> words = by_words(Trace.of_maps(maps, queries=["play", "##ing", "it"]))
    >>> words.tokens["source"], words["self"].map.dense()
    (['playing', 'it'], tensor([[[0.6667, 0.3333],
             [0.6667, 0.3333]]]))

    Args:
        trace: of one example: `trace.of(0)`
    """
    groups = {side: word_groups(labels) for side, labels in trace.tokens.items()}
    calls = []
    for call in trace.calls:
        if call.batch is not None:
            raise ValueError("by_words takes a trace of one example, such as trace.of(0)")
        M, N = call.shape[-2:]
        rows = groups.get(call.queries, list(range(M)))
        columns = groups.get(call.keys, list(range(N)))
        if "rows" in call.provenance:
            raise ValueError(f"{call.name!r} has selected rows only, which are no whole words")
        map = AttentionMap.of(merge_words(call.map.dense(), rows, columns))
        calls.append(replace(call, map=map, made_of=None))
    tokens = {side: word_labels(labels, groups[side]) for side, labels in trace.tokens.items()}
    return Trace(calls, tokens, {**trace.about, "words": True}, trace.missed)


def _membership(groups: Sequence[int], like: Tensor) -> Tensor:
    """1 where a piece belongs to a word, (words, pieces)."""
    index = torch.tensor(groups, dtype=torch.long, device=like.device)
    words = torch.arange(max(groups, default=-1) + 1, device=like.device)
    return (words.unsqueeze(-1) == index).to(like.dtype)


def _is_special(token: str) -> bool:
    ends = token[:1] + token[-1:]
    return len(token) > 2 and ends in ("<>", "[]")
