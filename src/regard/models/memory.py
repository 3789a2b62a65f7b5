"""The output of an encoder, which a decoder attends to."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.core.blocks import can_inspect_values
from regard.core.mask import Mask, lengths


class Memory(NamedTuple):
    """The encoder's states, of which the first `lengths[b]` of sentence b are real.

    >>> memory = Memory(torch.zeros(2, 3, 5), torch.tensor([3, 1]), None)
    >>> memory.mask().dense(1, 3).int().tolist()
    [[[1, 1, 1]], [[1, 0, 0]]]
    """

    states: Tensor  # (batch, S, width), zero at padding
    lengths: Tensor  # (batch,)
    final: tuple[Tensor, ...] | None  # last states, (batch, width) of each layer; see `Encoder`

    def mask(self) -> Mask | None:
        """Which states may be attended to; None if all of them."""
        if not can_inspect_values(self.lengths):
            return lengths(self.lengths)
        whole = bool((self.lengths == self.states.shape[1]).all())
        return None if whole else lengths(self.lengths)


def check_lengths(source: Tensor, counts: Tensor | None) -> Tensor:
    """How many positions of each sentence are real, checked, (batch,).

    Args:
        source: (batch, S) or (batch, S, width)
        counts: integers (batch,), or None for all
    """
    if counts is None:
        return torch.full((len(source),), source.shape[1], device=source.device)
    if counts.shape != source.shape[:1] or counts.is_floating_point():
        raise ValueError(
            f"source_lengths should be integers ({len(source)},) for a source "
            f"{tuple(source.shape)}, got {counts.dtype} {tuple(counts.shape)}"
        )
    if counts.numel() and can_inspect_values(counts):
        low, high = int(counts.min()), int(counts.max())
        if low < 0 or high > source.shape[1]:
            raise ValueError(
                f"source_lengths should be from 0 to {source.shape[1]}, the length of the source, "
                f"got {low} to {high}"
            )
    return counts
