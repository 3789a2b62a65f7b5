"""The Neural Turing Machine's memory: read and write heads over slots, step by step."""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import observer
from regard.attention.observer import observed
from regard.core.map import AttentionMap
from regard.core.weighted_sum import weighted_sum
from regard.layers.addressing import content, erase_and_add, interpolate, sharpen, shift


class MemoryState(NamedTuple):
    """What a memory remembers between two steps, and where its heads looked.

    The weights are the attention of the last step: stacked over time, they are its picture.
    """

    memory: Tensor  # (batch, slots, width)
    read_weights: Tensor  # (batch, reads, slots)
    write_weights: Tensor  # (batch, writes, slots)

    def read(self) -> Tensor:
        """What the read heads see: r = Σᵢ w(i) · M(i), eq. 2, (batch, reads · width)."""
        return weighted_sum(self.read_weights, self.memory).flatten(-2)

    def reorder(self, index: Tensor) -> "MemoryState":
        """The state with row index[b] in place of row b, for beams."""
        return MemoryState(*(tensor.index_select(0, index) for tensor in self))


class MemoryAttention(nn.Module):
    """Attention over an external memory that it also writes. Graves et al. 2014, section 3.

    Each head turns the controller's output into a key k, a key strength β, a gate g, a shift
    s and a power γ, and from them, the memory and its last weights makes new weights (eq. 5-9).
    A write head also makes an erase vector e and an add vector a.

    The order is that of the equations' time indices: the write heads address the memory
    M(t − 1) of the last step and change it into M(t); the read heads address and read M(t), so
    that what is written at a step can be read at it. The controller of the next step gets the
    read: `state.read()` is also there before the first step.

    >>> import torch
    >>> layer = MemoryAttention(11, slots=7, width=5, reads=2)
    >>> state = layer.start(batch=3)
    >>> read, state = layer.step(torch.randn(3, 11), state)
    >>> read.shape, state.memory.shape, state.read_weights.shape
    (torch.Size([3, 10]), torch.Size([3, 7, 5]), torch.Size([3, 2, 7]))

    Args:
        controller_dim: width of the controller's output
        slots: number of memory slots; no parameter depends on it
        width: numbers per slot
        reads: number of read heads
        writes: number of write heads
        shift: how far a head may move in a step, in either direction
    """

    def __init__(
        self,
        controller_dim: int,
        *,
        slots: int,
        width: int,
        reads: int = 1,
        writes: int = 1,
        shift: int = 1,
    ) -> None:
        super().__init__()
        sizes = {"controller_dim": controller_dim, "slots": slots, "width": width}
        for name, size in {**sizes, "reads": reads, "writes": writes}.items():
            if size < 1:
                raise ValueError(f"{name} must be 1 or more, got {size}")
        if shift < 0 or 2 * shift + 1 > slots:
            raise ValueError(
                f"shift must be from 0 to {(slots - 1) // 2}, so that its {2 * shift + 1} moves "
                f"end in different ones of the {slots} slots, got {shift}"
            )
        self.controller_dim, self.slots, self.width = controller_dim, slots, width
        self.reads, self.writes, self.shift = reads, writes, shift
        address = width + 1 + 1 + (2 * shift + 1) + 1  # k, β, g, s, γ
        self.read_heads = nn.Linear(controller_dim, reads * address)
        self.write_heads = nn.Linear(controller_dim, writes * (address + 2 * width))

    def start(self, batch: int) -> MemoryState:
        """The state before the first step: a memory with almost nothing in it, heads on slot 0.

        The memory is not zero but 1e-6 throughout, the start that Collier & Beel 2018 found to
        learn most reliably: an empty slot then has a direction that a key can ask for.
        """
        parameter = self.read_heads.weight
        memory = parameter.new_full((batch, self.slots, self.width), 1e-6)
        first = parameter.new_zeros(batch, 1, self.slots)
        first[..., 0] = 1.0
        return MemoryState(memory, first.repeat(1, self.reads, 1), first.repeat(1, self.writes, 1))

    @observed
    def step(self, controller: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
        """Write, then read.

        Args:
            controller: the controller's output, (batch, controller_dim)
            state: from `start` or the last step

        Returns: the read (batch, reads · width), and the new state
        """
        if observer.observing:
            reason = "a memory is addressed by content and location, not through a mask"
            observer.reject_edit(observer.observers(), reason)
        self._check(controller, state)
        write = self.write_heads(controller).unflatten(-1, (self.writes, -1))
        write, erase, add = write.split([write.shape[-1] - 2 * self.width] + 2 * [self.width], -1)
        write_weights = self._address(write, state.memory, state.write_weights)
        memory = erase_and_add(state.memory, write_weights, erase.sigmoid(), add)
        read = self.read_heads(controller).unflatten(-1, (self.reads, -1))
        read_weights = self._address(read, memory, state.read_weights)
        state = MemoryState(memory, read_weights, write_weights)
        output = state.read()
        if observer.observing:
            _notify(state, output)
        return output, state

    def _address(self, head: Tensor, memory: Tensor, previous: Tensor) -> Tensor:
        """The new weights of heads (batch, heads, address), (batch, heads, slots)."""
        moves = 2 * self.shift + 1
        key, strength, gate, kernel, power = head.split([self.width, 1, 1, moves, 1], dim=-1)
        weights = content(memory, key, F.softplus(strength))
        weights = interpolate(weights, previous, gate.sigmoid())
        weights = shift(weights, kernel.softmax(-1))
        return sharpen(weights, 1 + F.softplus(power)).to(memory.dtype)

    def _check(self, controller: Tensor, state: MemoryState) -> None:
        batch = len(state.memory)
        if controller.shape != (batch, self.controller_dim):
            raise ValueError(
                f"the controller's output should be (batch, controller_dim), here "
                f"{(batch, self.controller_dim)}, got {tuple(controller.shape)}"
            )
        expected = {
            "memory": (batch, self.slots, self.width),
            "read_weights": (batch, self.reads, self.slots),
            "write_weights": (batch, self.writes, self.slots),
        }
        for name, shape in expected.items():
            came = tuple(getattr(state, name).shape)
            if came != shape:
                raise ValueError(f"state.{name} should be {shape}, got {came}; see start(batch)")

    def extra_repr(self) -> str:
        return (
            f"{self.controller_dim}, slots={self.slots}, width={self.width}, "
            f"reads={self.reads}, writes={self.writes}, shift={self.shift}"
        )


def _notify(state: MemoryState, read: Tensor) -> None:
    """Notify observers where the heads wrote and read, as maps (batch, heads, 1, slots)."""
    value = state.memory.unsqueeze(1)  # (batch, 1, slots, width)

    def call(weights: Tensor, output: Tensor | None, part: str) -> observer.AttentionCall:
        row = weights.unsqueeze(-2)
        map = AttentionMap(lambda rows: row[..., rows, :], None, row.shape)
        combine = None if output is None else lambda _, weights, __: weights @ value
        return observer.AttentionCall(
            value, output, row.shape, "memory", None, lambda _: map, combine, part
        )

    listening = observer.observers()
    observer.notify(listening, call(state.write_weights, None, "write"))
    heads = read.unflatten(-1, (state.read_weights.shape[1], 1, -1))  # (batch, reads, 1, width)
    observer.notify(listening, call(state.read_weights, heads, "read"))
