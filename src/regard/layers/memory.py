"""The Neural Turing Machine's memory: read and write heads over slots, step by step.

The steps of Graves et al. 2014, sections 3.1 to 3.3, are functions of `memory` (..., slots, width)
and weights (..., heads, slots), a distribution over the slots for each head:

    content → interpolate → shift → sharpen → weights;  erase and add change the memory
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import observer
from regard.attention.observer import observed
from regard.attention.record import CallRecord
from regard.core.map import AttentionMap
from regard.core.score import cosine
from regard.core.weighted_sum import weighted_sum
from regard.layers.checks import check_sizes


class MemoryState(NamedTuple):
    """The memory between two steps, and the weights of its heads in the last one."""

    memory: Tensor  # (batch, slots, width)
    read_weights: Tensor  # (batch, reads, slots)
    write_weights: Tensor  # (batch, writes, slots)

    def read(self) -> Tensor:
        """The content read: r = Σᵢ w(i) · M(i), eq. 2, (batch, reads · width)."""
        return weighted_sum(self.read_weights, self.memory).flatten(-2)

    def reorder(self, index: Tensor) -> "MemoryState":
        """The state with row index[b] in place of row b, for beams."""
        return MemoryState(*(tensor.index_select(0, index) for tensor in self))


class MemoryAttention(nn.Module):
    """Attention over an external memory that it also writes. Graves et al. 2014, section 3.

    Each head projects the controller's output to a key k, a key strength β, a gate g, a shift s
    and a power γ; with the memory and its last weights they give new weights (eq. 5-9). A write
    head also has an erase vector e and an add vector a.

    All heads address the memory M(t − 1) of the last step, so that a key finds what was written
    before and not what is written now. The write heads change it into M(t), and the read heads
    read M(t). The controller of the next step gets `state.read()`, which is defined before the
    first step, too.

    >>> import torch
    >>> layer = MemoryAttention(11, slots=7, width=5, reads=2)
    >>> state = layer.start(batch=3)
    >>> read, state = layer.step(torch.randn(3, 11), state)
    >>> read.shape, state.memory.shape, state.read_weights.shape
    (torch.Size([3, 10]), torch.Size([3, 7, 5]), torch.Size([3, 2, 7]))

    Args:
        controller_dim: width of the controller's output
        slots: number of memory slots, independent of the parameters
        width: numbers per slot
        reads: number of read heads
        writes: number of write heads
        shift: the farthest shift of a head in a step, in either direction
        search: the gate of read heads at the start, above 0 and below 1: how much they look by
            content, and not from where they are
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
        search: float = 0.5,
    ) -> None:
        super().__init__()
        check_sizes(
            controller_dim=controller_dim, slots=slots, width=width, reads=reads, writes=writes
        )
        if shift < 0 or 2 * shift + 1 > slots:
            raise ValueError(
                f"shift must be from 0 to {(slots - 1) // 2} for {slots} slots, so that its "
                f"{2 * shift + 1} shifts differ, got {shift}"
            )
        if not 0 < search < 1:
            raise ValueError(f"search must be above 0 and below 1, got {search}")
        self.controller_dim, self.slots, self.width = controller_dim, slots, width
        self.search = search
        self.reads, self.writes, self.shift = reads, writes, shift
        address = width + 1 + 1 + (2 * shift + 1) + 1  # k, β, g, s, γ
        self.read_heads = nn.Linear(controller_dim, reads * address)
        self.write_heads = nn.Linear(controller_dim, writes * (address + 2 * width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start as a tape that can be searched.

        Write heads move on by a slot in each step. Read heads do so, too, and with a weight of
        `search` look for what the first write head would write now: their keys start equal to
        its add vector. All this is given by biases; the controller has little influence at first.
        """
        gate = math.log(self.search / (1 - self.search))
        for heads, count, start in (
            (self.read_heads, self.reads, (20.0, gate, 2.0, 0.0)),
            (self.write_heads, self.writes, (0.0, -4.0, 4.0, 4.0)),
        ):
            nn.init.xavier_uniform_(heads.weight, gain=3.0)
            nn.init.zeros_(heads.bias)
            scalars = slice(self.width, self.width + 2 + (2 * self.shift + 1) + 1)  # β, g, s, γ
            heads.weight.detach().unflatten(0, (count, -1))[:, scalars] *= 0.1
            bias = heads.bias.detach().view(count, -1)[:, scalars]
            bias[:, 0], bias[:, 1], forward, bias[:, -1] = start
            if self.shift:
                bias[:, 2 + self.shift + 1] = forward
        add = self.write_heads.weight.detach().unflatten(0, (self.writes, -1))[0, -self.width :]
        self.read_heads.weight.detach().unflatten(0, (self.reads, -1))[:, : self.width] = add

    def start(self, batch: int) -> MemoryState:
        """The state before the first step: a memory of 1e-6 everywhere, heads on slot 0.

        Collier & Beel 2018 found this to learn most reliably: empty slots have a direction that a
        key can be similar to.
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
        read = self.read_heads(controller).unflatten(-1, (self.reads, -1))
        weights = self._address(
            torch.cat((read, write), dim=1),
            state.memory,
            torch.cat((state.read_weights, state.write_weights), dim=1),
        )
        read_weights, write_weights = weights.split([self.reads, self.writes], dim=1)
        memory = erase_and_add(state.memory, write_weights, erase.sigmoid(), add)
        state = MemoryState(memory, read_weights, write_weights)
        output = state.read()
        if observer.observing:
            _notify(state, output)
        return output, state

    def _address(self, head: Tensor, memory: Tensor, previous: Tensor) -> Tensor:
        """The new weights of heads (batch, heads, address), (batch, heads, slots)."""
        shifts = 2 * self.shift + 1
        key, strength, gate, kernel, power = head.split([self.width, 1, 1, shifts, 1], dim=-1)
        weights = content(memory, key, F.softplus(strength))
        weights = interpolate(weights, previous, gate.sigmoid())
        weights = shift(weights, kernel.softmax(-1))
        return sharpen(weights, 1 + F.softplus(power)).to(memory.dtype)

    def _check(self, controller: Tensor, state: MemoryState) -> None:
        batch = state.memory.shape[0]
        if controller.shape != (batch, self.controller_dim):
            raise ValueError(
                f"controller should be (batch, controller_dim) = {(batch, self.controller_dim)}, "
                f"got {tuple(controller.shape)}"
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
    """Notify observers of the write and the read, as maps (batch, heads, 1, slots)."""
    value = state.memory.unsqueeze(1)  # (batch, 1, slots, width)

    def call(weights: Tensor, output: Tensor | None, part: str) -> CallRecord:
        row = weights.unsqueeze(-2)
        map = AttentionMap.of(row)
        combine = None if output is None else lambda _, weights, __: weights @ value
        return CallRecord(value, output, row.shape, "memory", None, lambda _: map, combine, part)

    listening = observer.observers()
    observer.notify(listening, call(state.write_weights, None, "write"))
    heads = read.unflatten(-1, (state.read_weights.shape[1], 1, -1))  # (batch, reads, 1, width)
    observer.notify(listening, call(state.read_weights, heads, "read"))


def content(memory: Tensor, key: Tensor, strength: Tensor) -> Tensor:
    """Address slots by content: softmax over slots of β · cos(k, M(i)). Eq. 5 and 6.

    The cosine of a key or a slot of zeros is 0, without gradient.

    >>> memory = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> content(memory, key=torch.tensor([[2.0, 0.0]]), strength=torch.tensor([[20.0]]))
    tensor([[1.0000e+00, 2.0612e-09, 2.0612e-09]])

    Args:
        memory: (..., slots, width)
        key: (..., heads, width)
        strength: β, above 0, (..., heads, 1)

    Returns: (..., heads, slots)
    """
    return torch.softmax(cosine(key, memory, strength), dim=-1)


def interpolate(content: Tensor, previous: Tensor, gate: Tensor) -> Tensor:
    """Interpolate between content weights and those of the last step: g·wᶜ + (1 − g)·w. Eq. 7.

    Args:
        content: (..., heads, slots)
        previous: (..., heads, slots)
        gate: g, from 0 to 1, (..., heads, 1)
    """
    return gate * content + (1 - gate) * previous


def shift(weights: Tensor, kernel: Tensor) -> Tensor:
    """Shift weights by circular convolution: w̃(i) = Σⱼ w(j) · s(i − j), modulo slots. Eq. 8.

    >>> shift(torch.tensor([[0.0, 0.0, 1.0]]), kernel=torch.tensor([[0.0, 0.1, 0.9]]))
    tensor([[0.9000, 0.0000, 0.1000]])

    Args:
        weights: (..., heads, slots)
        kernel: s, a distribution over the shifts −n … n, (..., heads, 2n + 1)
    """
    reach = kernel.shape[-1] // 2
    first = weights.shape[-1] - reach
    around = torch.cat((weights[..., first:], weights, weights[..., :reach]), dim=-1)
    windows = around.unfold(-1, 2 * reach + 1, 1)  # (..., heads, slots, 2n + 1)
    return (windows * kernel.flip(-1).unsqueeze(-2)).sum(-1)


def sharpen(weights: Tensor, power: Tensor) -> Tensor:
    """Sharpen what shifting blurred: w(i)^γ / Σⱼ w(j)^γ. Eq. 9.

    Weights are first divided by the largest, so that the sum is at least 1 for any γ. Weights
    that are all zero stay zero.

    >>> sharpen(torch.tensor([[0.0, 0.25, 0.75]]), power=torch.tensor([[2.0]]))
    tensor([[0.0000, 0.1000, 0.9000]])

    Args:
        weights: (..., heads, slots)
        power: γ, from 1, (..., heads, 1)
    """
    largest = weights.detach().amax(dim=-1, keepdim=True)
    empty = largest == 0
    scaled = (weights / largest.masked_fill(empty, 1.0)) ** power
    return scaled / scaled.sum(-1, keepdim=True).masked_fill(empty, 1.0)


def erase_and_add(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Write: M(i) · Πₕ (1 − wₕ(i)·eₕ) + Σₕ wₕ(i)·aₕ. Eq. 3 and 4.

    All heads erase before any adds, so that their order does not matter.

    >>> erase_and_add(
    ...     memory=torch.tensor([[5.0, 5.0], [5.0, 5.0]]),
    ...     weights=torch.tensor([[1.0, 0.0]]),
    ...     erase=torch.tensor([[1.0, 0.0]]),
    ...     add=torch.tensor([[2.0, 3.0]]),
    ... )
    tensor([[2., 8.],
            [5., 5.]])

    Args:
        memory: (..., slots, width)
        weights: (..., heads, slots)
        erase: e, from 0 to 1, (..., heads, width)
        add: a, (..., heads, width)

    Returns: (..., slots, width)
    """
    for head in range(weights.shape[-2]):
        memory = memory * (1 - weights[..., head, :, None] * erase[..., head, None, :])
    return memory + weights.transpose(-1, -2) @ add
