"""What an encoder leaves behind for a decoder."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.core.map import AttentionMap
from regard.core.mask import Mask, lengths

Maps = dict[str, AttentionMap | Tensor]
"""Attention maps by the name of the module that made them, (batch, heads, M, N) each."""


class Memory(NamedTuple):
    """The encoder's states, of which the first `lengths[b]` of sentence b are real.

    >>> memory = Memory(torch.zeros(2, 3, 5), torch.tensor([3, 1]), None)
    >>> memory.mask().dense(1, 3).int().tolist()
    [[[1, 1, 1]], [[1, 0, 0]]]
    """

    states: Tensor  # (batch, S, width), zero where nothing is real
    lengths: Tensor  # (batch,)
    final: tuple[Tensor, ...] | None  # the last states, (batch, width) of each layer; see Encoder

    def mask(self) -> Mask | None:
        """Which states may be attended to; None if all of them."""
        whole = bool((self.lengths == self.states.shape[1]).all())
        return None if whole else lengths(self.lengths)


def real(source: Tensor, counts: Tensor | None) -> Tensor:
    """How many positions of each sentence are real, checked, (batch,).

    Args:
        source: (batch, S) or (batch, S, width)
        counts: whole numbers (batch,), or None for all
    """
    if counts is None:
        return torch.full((len(source),), source.shape[1], device=source.device)
    if counts.shape != source.shape[:1] or counts.is_floating_point():
        raise ValueError(
            f"source_lengths should be whole numbers ({len(source)},) for a source "
            f"{tuple(source.shape)}, got {counts.dtype} {tuple(counts.shape)}"
        )
    if counts.numel() and not 0 <= int(counts.min()) <= int(counts.max()) <= source.shape[1]:
        raise ValueError(
            f"source_lengths should be from 0 to {source.shape[1]}, the length of the source, got "
            f"{int(counts.min())} to {int(counts.max())}"
        )
    return counts


def without_padding(x: Tensor, counts: Tensor) -> Tensor:
    """x (batch, S, width) with zeros beyond the first `counts[b]` positions.

    Whatever the padding holds, NaN included, then reaches no output and no gradient.
    """
    position = torch.arange(x.shape[1], device=x.device)
    return torch.where((position < counts.unsqueeze(1)).unsqueeze(-1), x, 0.0)
