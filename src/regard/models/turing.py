"""The Neural Turing Machine, and an LSTM without external memory to compare with."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.layers.checks import check_sizes
from regard.layers.memory import MemoryAttention
from regard.models.recurrent import initialize


class MemoryOutput(NamedTuple):
    """The output of every step, and the weights of the heads if they were requested."""

    logits: Tensor  # (B, T, out)
    read_weights: Tensor | None = None  # (B, T, reads, slots)
    write_weights: Tensor | None = None  # (B, T, writes, slots)


class NeuralTuringMachine(nn.Module):
    """A controller with an external memory. Graves et al. 2014, section 3.

        h(t) = controller([x(t) ; r(t − 1)], h(t − 1)),  r(t) = memory(h(t)),
        y(t) = W [h(t) ; r(t)] + b

    >>> machine = NeuralTuringMachine(3, 5, hidden=7, slots=11, width=2)
    >>> machine(torch.zeros(2, 13, 3)).logits.shape
    torch.Size([2, 13, 5])

    Args:
        channels: width of the input of a step
        out: width of the output of a step
        hidden: width of the controller, an LSTM of one layer
        slots, width, reads, writes, shift, search: of the memory, see `MemoryAttention`
    """

    def __init__(
        self,
        channels: int,
        out: int,
        *,
        hidden: int = 100,
        slots: int = 128,
        width: int = 20,
        reads: int = 1,
        writes: int = 1,
        shift: int = 1,
        search: float = 0.5,
    ) -> None:
        super().__init__()
        check_sizes(channels=channels, out=out, hidden=hidden)
        self.memory = MemoryAttention(
            hidden,
            slots=slots,
            width=width,
            reads=reads,
            writes=writes,
            shift=shift,
            search=search,
        )
        self.controller = nn.LSTMCell(channels + reads * width, hidden)
        self.output = nn.Linear(hidden + reads * width, out)
        initialize(self.controller)
        # equal inputs give similar states, whatever was read or came before
        self.controller.weight_ih.detach()[:, :channels] *= 6.0
        self.controller.weight_ih.detach()[:, channels:] *= 0.1
        self.first = nn.Parameter(torch.zeros(2, hidden))  # the controller's first state

    def forward(self, inputs: Tensor, *, return_map: bool = False) -> MemoryOutput:
        """Run over inputs (B, T, channels); with `return_map` also return all weights."""
        _check(inputs, self.controller.input_size - self.memory.reads * self.memory.width)
        state = self.memory.start(len(inputs))
        read = state.read()
        h, c = (first.expand(len(inputs), -1) for first in self.first)
        outputs, states = [], []
        for x in inputs.unbind(1):
            h, c = self.controller(torch.cat((x, read), -1), (h, c))
            read, state = self.memory.step(h, state)
            outputs.append(torch.cat((h, read), -1))
            if return_map:
                states.append(state)
        logits = self.output(torch.stack(outputs, 1))
        if not return_map:
            return MemoryOutput(logits)
        return MemoryOutput(
            logits,
            torch.stack([state.read_weights for state in states], 1),
            torch.stack([state.write_weights for state in states], 1),
        )


class LongShortTermMemory(nn.Module):
    """An LSTM without any other memory, for comparison. Graves et al. 2014, section 4.

    >>> LongShortTermMemory(3, 5, hidden=7)(torch.zeros(2, 13, 3)).logits.shape
    torch.Size([2, 13, 5])

    Args:
        channels: width of the input of a step
        out: width of the output of a step
        hidden: width of a layer
        layers: number of layers
    """

    def __init__(self, channels: int, out: int, *, hidden: int = 256, layers: int = 3) -> None:
        super().__init__()
        check_sizes(channels=channels, out=out, hidden=hidden, layers=layers)
        self.lstm = nn.LSTM(channels, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, out)

    def forward(self, inputs: Tensor, *, return_map: bool = False) -> MemoryOutput:
        """Run over inputs (B, T, channels); there are no weights to return."""
        _check(inputs, self.lstm.input_size)
        states, _ = self.lstm(inputs)
        return MemoryOutput(self.output(states))


def _check(inputs: Tensor, channels: int) -> None:
    if inputs.dim() != 3 or inputs.shape[-1] != channels or not inputs.shape[1]:
        raise ValueError(
            f"inputs should be (sequences, steps, {channels}) with a step or more, got "
            f"{tuple(inputs.shape)}"
        )
