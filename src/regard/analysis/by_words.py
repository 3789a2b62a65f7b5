"""A trace of words from a trace of pieces."""

from dataclasses import replace

from regard.analysis.words import merge_words, word_groups, word_labels
from regard.trace import Trace
from regard.trace.call import held


def by_words(trace: Trace) -> Trace:
    """The trace with every map merged to words: keys summed, queries averaged. See `merge_words`.

    Where there are no labels for a side, its positions stay as they are.

    >>> import torch
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
            raise ValueError(f"{call.name!r} has some rows only, which are no whole words")
        map = held(merge_words(call.map.dense(), rows, columns))
        calls.append(replace(call, map=map, made_of=None))
    tokens = {side: word_labels(labels, groups[side]) for side, labels in trace.tokens.items()}
    return Trace(calls, tokens, {**trace.about, "words": True})
