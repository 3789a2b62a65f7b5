"""Search for many sentences in batches of similar length."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import PAD
from regard.decoding.search import Model

Result = TypeVar("Result")

MAX_ENTRIES = 16384
"""The most beams of a batch: sentences × size of the beam."""


def batched(
    search: Callable[..., list[Result]],
    model: Model,
    sources: Sequence[Any],
    *,
    sentences: int = 128,
    tokens: int = 8192,
    prefix: Sequence[Sequence[int]] | None = None,
    **options: Any,
) -> list[Result]:
    """Search for all sources, in batches of similar length.

    >>> from regard.decoding import greedy
    >>> from regard.models import build
    >>> model = build("luong", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> [len(found.tokens) > 0 for found in batched(greedy, model, [[5, 7, 11], [], [4]])]
    [True, False, True]

    Args:
        search: `greedy`, `beam` or `sample`
        model: on the device to use
        sources: the ids of each sentence, or its frames (length, width)
        sentences: the most sentences of a batch; fewer with large beams
        tokens: the most source tokens of a batch, padding included; a longer sentence is alone
        prefix: ids that each output must begin with, one list per sentence
        options: of the search

    Returns: the result of each source, in the order of the sources
    """
    if sentences < 1 or tokens < 1:
        raise ValueError(f"sentences and tokens should be 1 or more, got {sentences} and {tokens}")
    if prefix is not None and len(prefix) != len(sources):
        raise ValueError(f"prefix should be {len(sources)} lists of ids, got {len(prefix)}")
    sentences = min(sentences, max(1, MAX_ENTRIES // max(1, options.get("size", 1))))
    found: list[Any] = [None] * len(sources)
    device = model.output.weight.device
    drawn = "numbers" in inspect.signature(search).parameters
    numbers = options.pop("numbers", range(len(sources))) if drawn else None
    for index in by_length([len(source) for source in sources], sentences, tokens):
        source, lengths = padded([sources[i] for i in index])
        own = {} if prefix is None else {"prefix": [prefix[i] for i in index]}
        if numbers is not None:
            own["numbers"] = [numbers[i] for i in index]
        results = search(model, source.to(device), lengths.to(device), **own, **options)
        for i, result in zip(index, results, strict=True):
            found[i] = result
    return found


def by_length(lengths: Sequence[int], sentences: int, tokens: int) -> Iterator[list[int]]:
    """Positions of the sentences of each batch, the longest first.

    >>> list(by_length([2, 9, 3, 2], sentences=2, tokens=10))
    [[1], [2, 0], [3]]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        count = min(sentences, max(1, tokens // longest))
        yield order[start : start + count]
        start += count


def padded(sources: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Sources as one tensor, ids (batch, S) or frames (batch, S, width), and lengths (batch,)."""
    arrays = [np.asarray(source) for source in sources]
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    widths = {array.shape[1:] for array in arrays if len(array)}
    if len(widths) > 1:
        raise ValueError(f"sources should all be ids, or frames of one width, got {widths}")
    shape = (len(arrays), int(lengths.max(initial=0)), *(widths.pop() if widths else ()))
    dtype = np.int64 if len(shape) == 2 else np.float32
    whole = np.full(shape, PAD, dtype)
    for row, array in zip(whole, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(whole), torch.from_numpy(lengths)
