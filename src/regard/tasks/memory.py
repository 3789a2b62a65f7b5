"""Bits to be remembered: a Neural Turing Machine, or an LSTM for comparison."""

import random
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import nn

from regard.data import fingerprint
from regard.data.bits import BIT_TASKS, Bits, draw_bits
from regard.models.turing import LongShortTermMemory, NeuralTuringMachine
from regard.tasks.machine import Machine, wrong
from regard.tasks.run import load_weights
from regard.training import Loss
from regard.training.config import Config
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]
MOST = 2**31  # seeds of batches


class Data(Settings):
    """The table `[data]`: sequences of bits, all generated."""

    name: Literal["copy", "repeat_copy", "recall"] = "copy"
    shortest: Count = Field(1, description="vectors to be copied, or items to be recalled")
    longest: Count = 20
    longer: Count | None = Field(
        None, description="a size that is only tested; twice the longest if not given"
    )
    rows: Count = Field(16, description="sequences of a batch, all of one size")
    batches: Count = Field(100, description="of an epoch")
    held_out: Count = Field(50, description="sequences of each size that is tested")

    @model_validator(mode="after")
    def _sizes(self) -> "Data":
        if self.longest < self.shortest:
            raise ValueError(f"longest={self.longest} is below shortest={self.shortest}")
        if self.name == "recall" and self.shortest < 2:
            raise ValueError("recall needs shortest=2 or more: the item after another is asked for")
        return self


class Model(Settings):
    """The table `[model]`."""

    kind: Literal["ntm", "lstm"] = "ntm"
    hidden: Count | None = Field(None, description="100 for the ntm's controller, 256 for an lstm")
    layers: Count = Field(3, description="of an lstm")
    slots: Count = Field(128, description="of the memory, as all below")
    width: Count = 20
    reads: Count = 1
    writes: Count = 1
    shift: int = Field(1, ge=0)


class MemoryTask:
    """The task of bits.

    Args:
        data: what is asked, and how large
        model: the machine
        seed: of the sequences
    """

    unit = "sequences"
    metric = "bit_error"
    larger_is_better = False

    def __init__(self, data: Data, model: Model, seed: int = 1) -> None:
        self.data, self.model, self.seed = data, model, seed
        self.longer = data.longer or 2 * data.longest

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "MemoryTask":
        """The task of a configuration; a run has nothing of its own."""
        data = read_settings(Data, config.data, "data")
        model = read_settings(Model, config.model, "model")
        read_settings(Settings, config.loss, "loss")  # there is nothing to set
        return cls(data, model, config.seed)

    @classmethod
    def open(cls, run: Path) -> Machine:
        """What `regard.load` gives for a run of this task."""
        config = read_run_config(run)
        data = read_settings(Data, config.data, "data")
        model = read_settings(Model, config.model, "model")
        return Machine(load_weights(cls(data, model).build(), run), data.name)

    def build(self) -> nn.Module:
        """A fresh machine for these channels."""
        task, model = BIT_TASKS[self.data.name], self.model
        sizes = {} if model.hidden is None else {"hidden": model.hidden}
        if model.kind == "lstm":
            return LongShortTermMemory(task.channels, task.out, layers=model.layers, **sizes)
        memory = model.model_dump(include={"slots", "width", "reads", "writes", "shift"})
        return NeuralTuringMachine(task.channels, task.out, **memory, **sizes)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return self.data.batches

    def batch(self, epoch: int, step: int) -> Bits:
        """Sequences of one size, which nobody has seen before."""
        draw = random.Random(f"{self.seed} {epoch} {step}")
        size = draw.randint(self.data.shortest, self.data.longest)
        return draw_bits(self.data.name, self.data.rows, size, seed=draw.randrange(MOST))

    def loss(self, model: nn.Module, batch: Bits) -> Loss:
        """Cross entropy of the bits that are asked for, on average over a sequence."""
        logits = model(batch.inputs).logits[:, batch.asked]
        mean = F.binary_cross_entropy_with_logits(logits, batch.targets[:, batch.asked])
        return Loss(mean * len(logits), len(logits))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The loss and the share of wrong bits at trained sizes, and the latter beyond them."""
        data = self.data
        loss, errors = 0.0, []
        sizes = sorted({data.shortest, (data.shortest + data.longest) // 2, data.longest})
        for size in sizes:
            bits = self._held_out(size)
            logits = model(bits.inputs).logits
            asked = logits[:, bits.asked], bits.targets[:, bits.asked]
            loss += float(F.binary_cross_entropy_with_logits(*asked)) / len(sizes)
            errors.append(wrong(logits, bits))
        far = self._held_out(self.longer)
        return {
            "loss": loss,
            "bit_error": sum(errors) / len(errors),
            "bit_error_longer": wrong(model(far.inputs).logits, far),
        }

    def write(self, run: Path) -> None:
        """Nothing: the configuration says it all."""

    def fingerprint(self) -> dict[str, str]:
        """The fingerprint of the first batch: all are generated."""
        return {"train": fingerprint(self.batch(0, 0))}

    def describe(self) -> str:
        """What is asked, for people."""
        data, task = self.data, BIT_TASKS[self.data.name]
        return (
            f"{data.name}: {task.about}; {data.shortest} to {data.longest} {task.size}, tested "
            f"with {self.longer} too\nby chance half of the bits are wrong"
        )

    def _held_out(self, size: int) -> Bits:
        seed = MOST + self.seed * 1000 + size  # beyond all seeds of batches
        return draw_bits(self.data.name, self.data.held_out, size, seed=seed)
