"""What every search begins with: checked sources, their memory, their limits and prefixes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batch import BOS, EOS, PAD
from regard.decoding.limits import Limits

NEVER = (PAD, BOS)
"""Tokens that are no part of a text: no search emits them."""


class Model(Protocol):
    """What a search asks of a model; `Seq2Seq` and `Transformer` are ones."""

    output: nn.Linear
    training: bool

    def encode(self, source: Tensor, source_lengths: Tensor | None = ..., /) -> Any: ...

    def start(self, memory: Any, /, *, return_map: bool = ...) -> Any: ...

    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]: ...

    def train(self, mode: bool = ..., /) -> Any: ...


class Search(NamedTuple):
    """Sentences ready to be continued: those whose source is not empty."""

    state: Any  # of the model, one entry for each sentence
    first: Tensor  # (sentences,) the begin of each
    numbers: np.ndarray  # (sentences,) which of the batch they are
    lengths: np.ndarray  # (sentences,) of the sources
    limits: np.ndarray  # (sentences,) the most tokens
    prefixes: list[Sequence[int]]  # what each must begin with

    def forced(self, owner: np.ndarray, step: int) -> tuple[Tensor, Tensor] | None:
        """Entries whose sentences have a prefix that far, and the tokens that it says.

        Args:
            owner: the sentence of each entry
            step: how many tokens there are already
        """
        if step >= self.longest:
            return None
        own = [(e, self.prefixes[s]) for e, s in enumerate(owner) if step < len(self.prefixes[s])]
        if not own:
            return None
        entries = torch.tensor([entry for entry, _ in own], device=self.first.device)
        return entries, torch.tensor([p[step] for _, p in own], device=self.first.device)

    @property
    def longest(self) -> int:
        """Tokens of the longest prefix."""
        return max(map(len, self.prefixes))


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """The model without dropout and without gradients, and as it was afterwards."""
    training = model.training
    model.train(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def begin(
    model: Model,
    source: Tensor,
    source_lengths: Tensor | None,
    *,
    limits: Limits,
    prefix: Sequence[Sequence[int]] | None,
    return_map: bool,
) -> Search | None:
    """Read the sources; None if all of them are empty."""
    batch = len(source)
    if prefix is not None and len(prefix) != batch:
        raise ValueError(f"prefix should be {batch} lists of ids, one a source, got {len(prefix)}")
    lengths = source_lengths
    if lengths is None:
        lengths = torch.full((batch,), source.shape[1], device=source.device)
    real = lengths.nonzero().squeeze(1)
    if len(real) == 0:
        return None
    if len(real) < batch:
        source, lengths = source[real], lengths[real]
    memory = model.encode(source, lengths)
    numbers = real.cpu().numpy()
    most = limits.of(lengths, model).cpu().numpy()
    prefixes: list[Sequence[int]] = [prefix[n] if prefix else () for n in numbers]
    for own, longest in zip(prefixes, most, strict=True):
        _check_prefix(own, int(longest), model.output.out_features)
    first = torch.full((len(real),), BOS, dtype=torch.long, device=source.device)
    state = model.start(memory, return_map=return_map)
    return Search(state, first, numbers, lengths.cpu().numpy(), most, prefixes)


def forbidden(forbid: Sequence[int], model: Model, device: torch.device) -> Tensor:
    """Ids that may not be emitted, (n,)."""
    size = model.output.out_features
    for token in forbid:
        if not 0 <= token < size:
            raise ValueError(f"forbid should be ids from 0 to {size - 1}, got {token}")
    if EOS in forbid:
        raise ValueError(f"the end, {EOS}, may not be forbidden: nothing would ever end")
    return torch.tensor(sorted({*NEVER, *forbid}), device=device)


def _check_prefix(prefix: Sequence[int], longest: int, size: int) -> None:
    if len(prefix) > longest:
        raise ValueError(f"a prefix of {len(prefix)} tokens is longer than the limit, {longest}")
    for token in prefix:
        if not 0 <= token < size or token in (*NEVER, EOS):
            raise ValueError(
                f"a prefix should be ids below {size} without padding, begin and end, got {token}"
            )
