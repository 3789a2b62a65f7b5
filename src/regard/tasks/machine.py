"""A trained machine that remembers bits: what `regard.load` gives for such a run."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.data.bits import Bits, draw_bits

LEAST = 0.1  # slots that no head ever touched by so much are left out of a picture


class Answer(NamedTuple):
    """What a machine said to a sequence."""

    bits: Tensor  # (T, out), zeros and ones
    read_weights: Tensor | None  # (T, reads, slots); None without a memory
    write_weights: Tensor | None  # (T, writes, slots)


class Machine:
    """A Neural Turing Machine, or an LSTM, with the name of what it was trained to do.

    >>> from regard.models.turing import NeuralTuringMachine
    >>> machine = Machine(NeuralTuringMachine(9, 8, slots=11), "copy")
    >>> machine.answer(draw_bits("copy", 1, 3, seed=1).inputs[0]).bits.shape
    torch.Size([7, 8])

    Args:
        model: hears inputs (B, T, channels)
        name: "copy", "repeat_copy" or "recall"
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        self.model, self.name = model.eval(), name

    @torch.no_grad()
    def answer(self, inputs: Tensor) -> Answer:
        """What it says to inputs (T, channels), and where its heads were."""
        if inputs.dim() != 2:
            raise ValueError(f"inputs should be (T, channels), got {tuple(inputs.shape)}")
        said = self.model(inputs.unsqueeze(0), return_map=True)
        weights = (
            None if part is None else part[0] for part in (said.read_weights, said.write_weights)
        )
        return Answer((said.logits[0] > 0).float(), *weights)

    def bit_error(self, size: int, count: int = 100, seed: int = 0) -> float:
        """The share of wrong bits in new sequences of a size."""
        bits = draw_bits(self.name, count, size, seed=seed)
        with torch.no_grad():
            return wrong(self.model(bits.inputs).logits, bits)

    def figure(self, path: str | Path, size: int = 20, seed: int = 0) -> Path:
        """Draw a new sequence, its answer, and the heads over time, as PNG or SVG."""
        from regard.visual.figure.tape import Band, tape

        bits = draw_bits(self.name, 1, size, seed=seed)
        found = self.answer(bits.inputs[0])
        said = found.bits * bits.asked.unsqueeze(1)
        bands = [
            Band("heard", bits.inputs[0].clamp(0, 1)),
            Band("wanted", bits.targets[0]),
            Band("said", said),
        ]
        if found.write_weights is not None and found.read_weights is not None:
            heads = torch.stack((found.write_weights.amax(1), found.read_weights.amax(1)))
            used = heads.amax((0, 1)) > LEAST  # (slots,)
            bands += [
                Band(name, weights[:, used], "viridis")
                for name, weights in zip(("written", "read"), heads, strict=True)
            ]
        share = wrong(found.bits.sub(0.5).unsqueeze(0), bits)
        return tape(bands, path, title=f"{self.name}, size {size}: {share:.1%} of bits wrong")


def wrong(logits: Tensor, bits: Bits) -> float:
    """The share of wrong bits among those that were asked for, logits (B, T, out)."""
    said = logits[:, bits.asked] > 0
    return float((said != (bits.targets[:, bits.asked] > 0.5)).float().mean())
