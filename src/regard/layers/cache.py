"""What a decoding layer remembers between steps: its own past, or a memory that beams share.

Both are values. A step returns a new one and leaves the old one as it was, so a state may be
stepped twice, for two continuations of one beginning.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.attention import Prepared
from regard.core.mask import Grid, Mask
from regard.layers.heads import mask_over_heads
from regard.layers.moves import Moves, as_moves

ROOM = 16
"""Positions that a past has room for at first."""


@dataclass(frozen=True, eq=False)
class Past:
    """Tensors (batch, ..., length, width) that grow at each step.

    They lie in buffers with room to spare, of which a past and its successors share the written
    part: t steps copy O(t) numbers, not O(t²). Where a gradient is wanted nothing is written in
    place, and each step copies.

    >>> past = Past(batch=2).append(torch.ones(2, 1, 3))
    >>> past.length, past.tensors[0].shape
    (1, torch.Size([2, 1, 3]))

    Args:
        batch: number of sequences
        keep: how many of the latest positions to remember; all of them if None
        buffers: where the tensors lie
        begin, end: which positions of the buffers are remembered
        length: positions seen since the start, remembered or not
        written: up to where somebody has written into the buffers
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
        """What is remembered, (batch, ..., length, width) each."""
        return tuple(map(self._part, self.buffers))

    def append(self, *new: Tensor) -> "Past":
        """The past with `new` tensors (batch, ..., steps, width) at its end."""
        steps = new[0].shape[-2]
        if any(tensor.requires_grad for tensor in (*self.buffers, *new)):
            past = self._joined(new)
        else:
            past = self if self._has_room(steps) else self._moved(new)
            for buffer, tensor in zip(past.buffers, new, strict=True):
                buffer.narrow(-2, past.end, steps).copy_(tensor)
            past.written[0] = past.end + steps
        end = past.end + steps
        begin = past.begin if self.keep is None else max(past.begin, end - self.keep)
        length = self.length + steps
        return Past(self.batch, self.keep, past.buffers, begin, end, length, past.written)

    def reorder(self, index: Tensor | Moves) -> "Past":
        """The past of other beams: entry i becomes what entry index[i] was.

        Args:
            index: whole numbers (new batch,), or moves that are worked out already; if every
                entry stays in its place nothing is copied
        """
        moves = as_moves(index, self.batch)
        if moves.stays:
            return self
        buffers = tuple(moves.of(buffer, self._part) for buffer in self.buffers)
        return replace(self, batch=len(moves), buffers=buffers, written=[self.end])

    def _part(self, buffer: Tensor) -> Tensor:
        """What is remembered of a buffer."""
        return buffer.narrow(-2, self.begin, self.end - self.begin)

    def _has_room(self, steps: int) -> bool:
        """Whether there is room behind this past that no other successor has taken."""
        if not self.buffers or self.end + steps > self.buffers[0].shape[-2]:
            return False
        usable = torch.is_inference_mode_enabled() or not self.buffers[0].is_inference()
        return usable and self.written[0] == self.end

    def _moved(self, new: tuple[Tensor, ...]) -> "Past":
        """The same past in larger buffers of its own."""
        size = self.end - self.begin
        room = max(ROOM, 2 * (size + new[0].shape[-2]))
        buffers = tuple(t.new_empty((*t.shape[:-2], room, t.shape[-1])) for t in new)
        for buffer, tensor in zip(buffers, self.tensors, strict=False):  # none at the start
            buffer[..., :size, :] = tensor
        return replace(self, buffers=buffers, begin=0, end=size, written=[size])

    def _joined(self, new: tuple[Tensor, ...]) -> "Past":
        """The same past in buffers that already end with `new`, made by differentiable copies."""
        size = self.end - self.begin
        buffers = new
        if self.buffers:
            pairs = zip(self.tensors, new, strict=True)
            buffers = tuple(torch.cat(pair, dim=-2) for pair in pairs)
        return replace(self, buffers=buffers, begin=0, end=size, written=[buffers[0].shape[-2]])


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """A memory that does not grow, held once for all beams of a sentence.

    Entry b of the batch belongs to sentence b // beams. Beams of a sentence trade places without
    anything being copied, and attention treats them as queries of one sentence.

    Args:
        tensors: (sentences, ..., N, width) each
        visible: which of it is real, bool (sentences or 1, heads or 1, 1, N), or None for all
        beams: entries of the batch for each sentence
        length: steps taken
        shade: `visible` as what to add to scores, 0 or -inf; None if some query sees nothing
        prepared: the same keys and values, ready to be asked by an additive score
    """

    tensors: tuple[Tensor, ...]
    visible: Tensor | None
    beams: int
    length: int = 0
    shade: Tensor | None = None
    prepared: Prepared | None = None

    @property
    def sentences(self) -> int:
        return len(self.tensors[0])

    @property
    def batch(self) -> int:
        return self.sentences * self.beams

    def stepped(self, steps: int) -> "SharedMemory":
        """The memory some steps later."""
        return replace(self, length=self.length + steps)

    def grouped(self, query: Tensor) -> Tensor:
        """Queries (batch, ..., steps, width) as (sentences, ..., beams · steps, width)."""
        if self.beams == 1:
            return query
        query = query.unflatten(0, (self.sentences, self.beams)).movedim(1, -3)
        return query.flatten(-3, -2)

    def ungrouped(self, output: Tensor) -> Tensor:
        """Undo `grouped`."""
        if self.beams == 1:
            return output
        return output.unflatten(-2, (self.beams, -1)).movedim(-3, 1).flatten(0, 1)

    def reorder(self, index: Tensor | Moves) -> "SharedMemory":
        """The memory of other beams: entry i becomes what entry index[i] was.

        Args:
            index: whole numbers (new batch,), or moves that are worked out already; sentences are
                copied only if one of them leaves, moves, or has another number of beams than the
                others
        """
        moves, beams = as_moves(index, self.batch).groups(self.beams)
        if moves.stays:
            return replace(self, beams=beams)
        return replace(
            self,
            tensors=tuple(map(moves.of, self.tensors)),
            visible=_picked(self.visible, moves),
            shade=_picked(self.shade, moves),
            beams=beams,
            prepared=None if self.prepared is None else self.prepared.select(moves.index),
        )


def _picked(mask: Tensor | None, moves: Moves) -> Tensor | None:
    """A mask (sentences or 1, ...) in a new order."""
    return mask if mask is None or len(mask) == 1 else moves.of(mask)


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
        project: the memory to the tensors to hold, (sentences, ..., N, width) each
        heads: how many heads a mask may tell apart
        keep: how many of the latest positions a past remembers
    """
    if memory is None:
        if memory_mask is not None:
            raise ValueError("memory_mask needs a memory: start(batch, memory, memory_mask)")
        return Past(batch, keep)
    sentences = len(memory)
    if batch < sentences or (sentences and batch % sentences):
        raise ValueError(
            f"memory {tuple(memory.shape)} is for {sentences} sentences, so batch should be "
            f"that or a multiple of it, got {batch}"
        )
    visible = None if memory_mask is None else _visible(memory_mask, memory, heads)
    if visible is not None:
        memory = torch.where(visible.any(1).mT, memory, 0.0)  # NaN in padding ends here
    shade = None
    if visible is not None and bool(visible.any(-1).all()):
        shade = torch.zeros_like(visible, dtype=memory.dtype).masked_fill_(~visible, -torch.inf)
    return SharedMemory(project(memory), visible, batch // max(sentences, 1), shade=shade)


def _visible(mask: Mask | Tensor, memory: Tensor, heads: int) -> Tensor | None:
    """Which of a memory is real, bool (sentences or 1, heads or 1, 1, N); None if all of it."""
    sentences, N = memory.shape[:2]
    if isinstance(mask, Tensor) and mask.dim() == 2:
        mask = mask.unsqueeze(1)
    mask = mask_over_heads(mask)
    if not mask.ignores_queries():
        raise ValueError(
            f"memory_mask {mask} differs from query to query, but it should say which of the "
            f"memory is real: lengths(...), or bool ({sentences}, {N}) with True = real"
        )
    grid = Grid(1, N, 2, memory.device)
    mask.check(grid)
    block = mask.block(slice(0, 1), slice(0, N), grid)
    visible = block.reshape(*(1,) * (4 - block.dim()), *block.shape)
    if visible.shape[0] not in (1, sentences) or visible.shape[1] not in (1, heads):
        raise ValueError(
            f"memory_mask {mask} does not fit a memory of {sentences} sentences and a layer of "
            f"{heads} heads; it should be lengths({sentences} numbers) or bool ({sentences}, {N})"
        )
    whole = not torch.compiler.is_compiling() and bool(visible.all())
    return None if whole else visible
