"""The state of a decoding layer between steps: its own past, or a memory that beams share.

Both are values: a step returns a new one and leaves the old one valid, so that two continuations
may start from the same state.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.attention import Prepared
from regard.core.blocks import can_inspect_values
from regard.core.mask import Grid, Mask
from regard.core.shapes import fits
from regard.layers.masking import mask_over_heads
from regard.layers.reorder import BatchReorder, as_reorder

FIRST_CAPACITY = 16
"""Positions for which a past allocates buffers at first."""


@dataclass(frozen=True, eq=False)
class Past:
    """Tensors (batch, ..., length, width) that grow at each step.

    They are views of larger buffers, which a past shares with its successors: t steps copy O(t)
    numbers, not O(t²). With gradients nothing is written in place, and each step copies.

    >>> past = Past(batch=2).append(torch.ones(2, 1, 3))
    >>> past.length, past.tensors[0].shape
    (1, torch.Size([2, 1, 3]))

    Args:
        batch: number of sequences
        keep: how many of the latest positions to keep; all of them if None
        buffers: allocated tensors, (batch, ..., capacity, width)
        begin, end: the positions of the buffers in use
        length: number of positions since the start, kept or not
        written: the end of what was written into the buffers, by this past or a successor
    """

    batch: int
    keep: int | None = None
    buffers: tuple[Tensor, ...] = ()
    begin: int = 0
    end: int = 0
    length: int = 0
    written: list[int] = field(default_factory=lambda: [0])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The kept positions, (batch, ..., length, width) each."""
        return tuple(map(self._part, self.buffers))

    def append(self, *new: Tensor) -> "Past":
        """The past followed by `new` tensors (batch, ..., steps, width)."""
        steps = new[0].shape[-2]
        if new[0].shape[0] != self.batch:  # it would broadcast
            raise ValueError(
                f"x should be ({self.batch}, steps, dim), one entry for each sequence of the "
                f"state, got ({new[0].shape[0]}, {steps}, dim)"
            )
        if any(tensor.requires_grad for tensor in (*self.buffers, *new)):
            past = self._concatenated(new)
        else:
            past = self if self._can_write(steps) else self._reallocated(new)
            for buffer, tensor in zip(past.buffers, new, strict=True):
                buffer.narrow(-2, past.end, steps).copy_(tensor)
            past.written[0] = past.end + steps
        end = past.end + steps
        begin = past.begin if self.keep is None else max(past.begin, end - self.keep)
        length = self.length + steps
        return Past(self.batch, self.keep, past.buffers, begin, end, length, past.written)

    def reorder(self, index: Tensor | BatchReorder) -> "Past":
        """The past of other beams: entry i becomes what entry index[i] was.

        Args:
            index: integers (new batch,), or a `BatchReorder`; if no entry changes nothing is
                copied
        """
        order = as_reorder(index, self.batch)
        if order.is_identity:
            return self
        buffers = tuple(order.apply(buffer, self._part) for buffer in self.buffers)
        return replace(self, batch=len(order), buffers=buffers, written=[self.end])

    def _part(self, buffer: Tensor) -> Tensor:
        """The kept positions of a buffer."""
        return buffer.narrow(-2, self.begin, self.end - self.begin)

    def _can_write(self, steps: int) -> bool:
        """Whether the buffers have room behind this past that no successor has written to."""
        if not self.buffers or self.end + steps > self.buffers[0].shape[-2]:
            return False
        usable = torch.is_inference_mode_enabled() or not self.buffers[0].is_inference()
        return usable and self.written[0] == self.end

    def _reallocated(self, new: tuple[Tensor, ...]) -> "Past":
        """The same past in new, larger buffers."""
        size = self.end - self.begin
        room = max(FIRST_CAPACITY, 2 * (size + new[0].shape[-2]))
        buffers = tuple(t.new_empty((*t.shape[:-2], room, t.shape[-1])) for t in new)
        for buffer, tensor in zip(buffers, self.tensors, strict=False):  # none at the start
            buffer[..., :size, :] = tensor
        return replace(self, buffers=buffers, begin=0, end=size, written=[size])

    def _concatenated(self, new: tuple[Tensor, ...]) -> "Past":
        """The same past in buffers that already contain `new`, by differentiable copies."""
        size = self.end - self.begin
        buffers = new
        if self.buffers:
            pairs = zip(self.tensors, new, strict=True)
            buffers = tuple(torch.cat(pair, dim=-2) for pair in pairs)
        return replace(self, buffers=buffers, begin=0, end=size, written=[buffers[0].shape[-2]])


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """A memory that does not grow, held once for all beams of a sentence.

    Entry b of the batch belongs to sentence b // beams. Reordering the beams of a sentence copies
    nothing, and attention treats them as queries of one sentence.

    Args:
        tensors: (sentences, ..., N, width) each
        visible: which positions are real, bool (sentences or 1, heads or 1, 1, N); None for all
        beams: entries of the batch for each sentence
        length: number of steps so far
        shade: `visible` as a bias, 0 or -inf; None if some query has no visible key
        prepared: the same keys and values, prepared for an additive score
    """

    tensors: tuple[Tensor, ...]
    visible: Tensor | None
    beams: int
    length: int = 0
    shade: Tensor | None = None
    prepared: Prepared | None = None

    @property
    def sentences(self) -> int:
        return self.tensors[0].shape[0]

    @property
    def batch(self) -> int:
        return self.sentences * self.beams

    def stepped(self, steps: int) -> "SharedMemory":
        """The memory after more steps."""
        return replace(self, length=self.length + steps)

    def grouped(self, query: Tensor) -> Tensor:
        """Queries (batch, ..., steps, width) as (sentences, ..., beams · steps, width)."""
        if self.beams == 1:
            return query
        query = query.unflatten(0, (self.sentences, self.beams)).movedim(1, -3)
        return query.flatten(-3, -2)

    def ungrouped(self, output: Tensor) -> Tensor:
        """The inverse of `grouped`."""
        if self.beams == 1:
            return output
        return output.unflatten(-2, (self.beams, -1)).movedim(-3, 1).flatten(0, 1)

    def reorder(self, index: Tensor | BatchReorder) -> "SharedMemory":
        """The memory of other beams: entry i becomes what entry index[i] was.

        Args:
            index: integers (new batch,), or a `BatchReorder`; sentences are copied only if one of
                them is removed, moves, or gets another number of beams than the others
        """
        order, beams = as_reorder(index, self.batch).by_group(self.beams)
        if order.is_identity:
            return replace(self, beams=beams)
        return replace(
            self,
            tensors=tuple(map(order.apply, self.tensors)),
            visible=_reordered(self.visible, order),
            shade=_reordered(self.shade, order),
            beams=beams,
            prepared=None if self.prepared is None else self.prepared.select(order.index),
        )


def _reordered(mask: Tensor | None, order: BatchReorder) -> Tensor | None:
    """A mask (sentences or 1, ...) in a new order."""
    return mask if mask is None or len(mask) == 1 else order.apply(mask)


def start(
    batch: int,
    memory: Tensor | None,
    memory_mask: Mask | Tensor | None,
    project: Callable[[Tensor], tuple[Tensor, ...]],
    *,
    heads: int = 1,
    keep: int | None = None,
) -> Past | SharedMemory:
    """The state of a layer before its first step: an empty past, or a memory.

    Args:
        batch: number of sequences to decode; with a memory, a multiple of its sentences
        memory: (sentences, N, width), or None
        memory_mask: which of it is real: a Mask that is the same for all queries, or bool
            (sentences, N)
        project: from the memory to the tensors to hold, (sentences, ..., N, width) each
        heads: number of heads of the mask
        keep: how many of the latest positions a past keeps
    """
    beams = count_beams(batch, memory, memory_mask)
    if memory is None:
        return Past(batch, keep)
    visible = None if memory_mask is None else _visible(memory_mask, memory, heads)
    shade = None
    if visible is not None:
        memory = torch.where(visible.any(1).mT, memory, 0.0)  # padding may be NaN
        if can_inspect_values(visible) and bool(visible.any(-1).all()):
            shade = torch.zeros_like(visible, dtype=memory.dtype).masked_fill_(~visible, -torch.inf)
    return SharedMemory(project(memory), visible, beams, shade=shade)


def count_beams(batch: int, memory: Tensor | None, memory_mask: Mask | Tensor | None) -> int:
    """The number of entries of a batch for each sentence of a memory, checked."""
    if memory is None:
        if memory_mask is not None:
            raise ValueError("memory_mask needs a memory: start(batch, memory, memory_mask)")
        return 1
    sentences = memory.shape[0]  # len() would make it a constant of an exported graph
    if batch < sentences or (sentences and batch % sentences):
        raise ValueError(
            f"batch should be a multiple of {sentences}, the sentences of memory "
            f"{tuple(memory.shape)}, got {batch}"
        )
    return batch // max(sentences, 1)


def check_step(x: Tensor, state: Any, dim: int) -> None:
    """Raise unless x is one position of each sequence of the state, (batch, 1, dim)."""
    if x.shape != (state.batch, 1, dim):
        raise ValueError(
            f"x should be one position of each sequence of the state, ({state.batch}, 1, {dim}), "
            f"got {tuple(x.shape)}"
        )


def _visible(mask: Mask | Tensor, memory: Tensor, heads: int) -> Tensor | None:
    """Which of a memory is real, bool (sentences or 1, heads or 1, 1, N); None if all of it."""
    sentences, N = memory.shape[:2]
    if isinstance(mask, Tensor) and mask.dim() == 2:
        mask = mask.unsqueeze(1)
    mask = mask_over_heads(mask)
    if not mask.ignores_queries():
        raise ValueError(
            f"memory_mask should be the same for all queries, such as lengths(...) or bool "
            f"({sentences}, {N}) with True = real, got {mask}"
        )
    grid = Grid(1, N, 2, memory.device)
    mask.check(grid)
    block = mask.block(slice(0, 1), slice(0, N), grid)
    visible = block.reshape(*(1,) * (4 - block.dim()), *block.shape)
    if not fits(visible.shape[:2], (sentences, heads)):
        raise ValueError(
            f"memory_mask {mask} does not fit a memory of {sentences} sentences and a layer of "
            f"{heads} heads; it should be lengths({sentences} numbers) or bool ({sentences}, {N})"
        )
    whole = can_inspect_values(visible) and bool(visible.all())
    return None if whole else visible
