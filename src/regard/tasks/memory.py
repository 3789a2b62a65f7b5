"""Sequences of bits to remember: a Neural Turing Machine, or an LSTM for comparison."""

import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.core.map import AttentionMap
from regard.data import fingerprint
from regard.data.sequences import BIT_TASKS, MOST_REPEATS, Bits, draw_bits
from regard.models.turing import LongShortTermMemory, NeuralTuringMachine
from regard.tasks.predictor import Predictor, check_inputs, field, whole_number
from regard.tasks.run import load_model
from regard.tasks.settings import ConfiguredTask, Count
from regard.trace import Call, Trace
from regard.training import Config, Loss, Settings, read_settings
from regard.training.device import device_of, to_device
from regard.training.run_directory import read_run_config

SEEDS = 2**31  # of batches
SIZE = 20  # of an example
LARGEST = 2000  # size of a sequence that a line may ask for


class Data(Settings):
    """The table `[data]`: sequences of bits, all generated."""

    name: Literal["copy", "repeat_copy", "recall"] = Field(
        "copy", description="what is to be done with the sequence"
    )
    shortest: Count = Field(1, description="vectors to copy, or items to recall")
    longest: Count = Field(20, description="longest sequence in training")
    longer: Count | None = Field(
        None, description="a size that is only tested; twice the longest by default"
    )
    rows: Count = Field(16, description="sequences of a batch, all of one size")
    batches: Count = Field(100, description="of an epoch")
    single: int = Field(
        0,
        ge=0,
        description="epochs of repeat_copy with one copy; in as many more it grows to ten",
    )
    held_out: Count = Field(
        50,
        description="sequences of each size that is tested, of repeat_copy with all numbers of "
        "copies",
    )

    @model_validator(mode="after")
    def _sizes(self) -> "Data":
        if self.longest < self.shortest:
            raise ValueError(f"longest={self.longest} is below shortest={self.shortest}")
        if self.name == "recall" and self.shortest < 2:
            raise ValueError("recall needs shortest=2 or more: the item after another is recalled")
        return self


class Model(Settings):
    """The table `[model]`."""

    kind: Literal["ntm", "lstm"] = Field(
        "ntm", description="Neural Turing Machine, or an LSTM for comparison"
    )
    hidden: Count | None = Field(None, description="100 for the ntm's controller, 256 for an lstm")
    layers: Count = Field(3, description="of an lstm")
    slots: Count = Field(128, description="of the memory, as all below")
    width: Count = Field(20, description="width of a memory slot")
    reads: Count = Field(1, description="number of read heads")
    writes: Count = Field(1, description="number of write heads")
    shift: int = Field(1, ge=0, description="how far a head moves in a step, at most")
    search: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="how much read heads look by content at the start, not from where they are",
    )


class Answer(NamedTuple):
    """The output for a sequence, and where the heads were."""

    bits: Tensor  # (T, out), zeros and ones
    read_weights: Tensor | None  # (T, reads, slots); None without a memory
    write_weights: Tensor | None  # (T, writes, slots)


class MemoryPredictor(Predictor):
    """A Neural Turing Machine, or an LSTM: a run of the task memory.

    An input is a sequence (T, channels), or the size of one to generate.

    >>> predictor = MemoryPredictor(NeuralTuringMachine(9, 8, slots=11), "copy")
    >>> (answer,) = predictor.predict([draw_bits("copy", 1, 3, seed=1).inputs[0]])
    >>> answer.bits.shape
    torch.Size([7, 8])

    Args:
        model: reads (B, T, channels)
        name: what it was trained for: "copy", "repeat_copy" or "recall"
        config: of the run
    """

    task: ClassVar[str] = "memory"

    def __init__(self, model: nn.Module, name: str, config: Config | None = None) -> None:
        self.model, self.name, self.config = model.eval(), name, config

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "MemoryPredictor":
        """Load a run directory of the task memory."""
        config = read_run_config(directory)
        data = read_settings(Data, config.data, "data")
        model = read_settings(Model, config.model, "model")
        built = load_model(partial(_build, data.name, model), directory, device)
        return cls(built, data.name, config)

    @torch.no_grad()
    def predict(self, inputs: Sequence[Tensor | int]) -> list[Answer]:
        """Return what the model answers to each sequence, and where its heads were."""
        check_inputs(inputs, "sequences")
        answers = []
        for one in inputs:
            sequence = self._bits(one).inputs[0] if isinstance(one, int) else one
            if sequence.dim() != 2:
                raise ValueError(f"expected (T, channels), got {tuple(sequence.shape)}")
            device = self.device
            found = self.model(sequence.unsqueeze(0).to(device), return_map=True)
            weights = (
                None if part is None else part[0].cpu()
                for part in (found.read_weights, found.write_weights)
            )
            answers.append(Answer((found.logits[0] > 0).float().cpu(), *weights))
        return answers

    def trace(self, input: Tensor | int = SIZE, *, seed: int = 0) -> Trace:
        """Return the weights of the heads at each step of a sequence.

        Args:
            input: a sequence (T, channels), or the size of one to generate: vectors to copy, or
                items to recall
            seed: of a generated sequence
        """
        bits, sequence = None, input
        if isinstance(sequence, int):
            bits = self._bits(sequence, seed)
            sequence = bits.inputs[0]
        (answer,) = self.predict([sequence])
        calls = [
            Call(name, AttentionMap.of(weights.transpose(0, 1)), "step", "slot")
            for name, weights in (("write", answer.write_weights), ("read", answer.read_weights))
            if weights is not None
        ]
        steps, slots = len(answer.bits), calls[0].shape[-1] if calls else 0
        about: dict[str, Any] = {"task": self.task, "title": self.name}
        about["input"], output = sequence.clamp(0, 1).tolist(), answer.bits
        if bits is not None:
            wrong = bit_error(answer.bits.sub(0.5).unsqueeze(0), bits)
            about["title"] = f"{self.name}, size {input}: {wrong:.1%} of bits wrong"
            about["target"], output = bits.targets[0].tolist(), output * bits.due.unsqueeze(1)
        about["output"] = output.tolist()
        tokens = {"step": [*map(str, range(steps))], "slot": [*map(str, range(slots))]}
        return Trace(calls, tokens, about)

    def bit_error(self, size: int, count: int = 100, seed: int = 0) -> float:
        """Return the share of wrong bits in new sequences of a size, of all numbers of copies."""
        parts = [to_device(part, self.device) for part in _draw_all(self.name, count, size, seed)]
        with torch.no_grad():
            return _mean(parts, [bit_error(self.model(part.inputs).logits, part) for part in parts])

    def parse(self, record: str | Mapping[str, Any]) -> int:
        """Return the size of a line, or `size` of a JSON object."""
        size = record if isinstance(record, str) else field(record, "size", kind=int)
        return whole_number(size, "the size of a sequence", LARGEST)

    def to_text(self, prediction: Answer) -> str:
        """Return the answer, a line of bits for each step."""
        rows = prediction.bits.int().tolist()
        return "\n".join("".join(map(str, row)) for row in rows)

    def to_json(self, prediction: Answer) -> Any:
        """Return the bits of each step."""
        return {"bits": prediction.bits.int().tolist()}

    def examples(self, count: int, split: str = "test") -> list[int]:
        """Return sizes of sequences: those that it was trained on, the largest first."""
        longest = SIZE
        if self.config is not None:
            longest = read_settings(Data, self.config.data, "data").longest
        return [max(1, longest - number) for number in range(count)]

    def _bits(self, size: int, seed: int = 0) -> Bits:
        return draw_bits(self.name, 1, size, seed=seed)


def bit_error(logits: Tensor, bits: Bits) -> float:
    """Return the share of wrong bits where an answer is due, of logits (B, T, out)."""
    answer = logits[:, bits.due] > 0
    return float((answer != (bits.targets[:, bits.due] > 0.5)).float().mean())


def _draw_all(name: str, count: int, size: int, seed: int) -> list[Bits]:
    """Sequences of one size; of repeat_copy equally many of each number of copies."""
    if name != "repeat_copy":
        return [draw_bits(name, count, size, seed=seed)]
    each = -(-count // MOST_REPEATS)
    return [
        draw_bits(name, each, size, seed=seed + LARGEST * repeats, repeats=repeats)
        for repeats in range(1, MOST_REPEATS + 1)
    ]


def _mean(parts: Sequence[Bits], means: Sequence[float]) -> float:
    """Return the mean over all bits, from the means of each part, which have as many sequences."""
    steps = [int(part.due.sum()) for part in parts]
    return sum(size * mean for size, mean in zip(steps, means, strict=True)) / sum(steps)


def _build(name: str, model: Model) -> nn.Module:
    task = BIT_TASKS[name]
    sizes = {} if model.hidden is None else {"hidden": model.hidden}
    if model.kind == "lstm":
        return LongShortTermMemory(task.channels, task.out, layers=model.layers, **sizes)
    memory = model.model_dump(include={"slots", "width", "reads", "writes", "shift", "search"})
    return NeuralTuringMachine(task.channels, task.out, **memory, **sizes)


class MemoryTask(ConfiguredTask):
    """Sequences of bits to remember.

    Args:
        data: what is to be done with them, and their sizes
        model: the machine
        seed: of the sequences
        run: has nothing else to keep
    """

    predictor = MemoryPredictor
    tables = (("data", Data), ("model", Model))
    unit = "sequences"
    divisible = False  # all rows share `due`
    metric = "loss"  # several evaluations may have no wrong bit
    larger_is_better = False

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        self.longer = data.longer or 2 * data.longest

    def build(self) -> nn.Module:
        """Build a fresh model for these channels."""
        return _build(self.data.name, self.model)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return self.data.batches

    def batch(self, epoch: int, step: int) -> Bits:
        """Return new sequences of one size."""
        draw = random.Random(f"{self.seed} {epoch} {step}")
        size = draw.randint(self.data.shortest, self.data.longest)
        seed = draw.randrange(SEEDS)
        repeats = draw.randint(1, self._most_repeats(epoch + step / self.data.batches))
        return draw_bits(self.data.name, self.data.rows, size, seed=seed, repeats=repeats)

    def loss(self, model: nn.Module, batch: Bits) -> Loss:
        """Return the cross entropy of the bits of the answer, the mean over a sequence."""
        logits = model(batch.inputs).logits[:, batch.due]
        mean = F.binary_cross_entropy_with_logits(logits, batch.targets[:, batch.due])
        return Loss(mean * len(logits), len(logits))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return loss and share of wrong bits at trained sizes, and the latter beyond them."""
        data = self.data
        sizes = sorted({data.shortest, (data.shortest + data.longest) // 2, data.longest})
        found = [self._evaluate(model, size) for size in sizes]
        loss, wrong = (sum(numbers) / len(sizes) for numbers in zip(*found, strict=True))
        _, far = self._evaluate(model, self.longer)
        return {"loss": loss, "bit_error": wrong, "bit_error_longer": far}

    def _evaluate(self, model: nn.Module, size: int) -> tuple[float, float]:
        """The cross entropy and the share of wrong bits of held-out sequences of a size."""
        seed = SEEDS + self.seed * 1000 + size  # beyond all seeds of batches
        drawn = _draw_all(self.data.name, self.data.held_out, size, seed)
        parts = [to_device(part, device_of(model)) for part in drawn]
        losses, errors = [], []
        for part in parts:
            logits = model(part.inputs).logits
            due = logits[:, part.due], part.targets[:, part.due]
            losses.append(float(F.binary_cross_entropy_with_logits(*due)))
            errors.append(bit_error(logits, part))
        return _mean(parts, losses), _mean(parts, errors)

    def write(self, run: Path) -> None:
        """Store nothing: the configuration is all that is needed."""

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of the first batch: all are generated."""
        return {"train": fingerprint(self.batch(0, 0))}

    def describe(self) -> str:
        """Return what is to be learned, for people."""
        data, task = self.data, BIT_TASKS[self.data.name]
        return (
            f"{data.name}: {task.about}; {data.shortest} to {data.longest} {task.size}, tested "
            f"with {self.longer} too\nby chance half of the bits are wrong"
        )

    def _most_repeats(self, epochs: float) -> int:
        single = self.data.single
        if not single:
            return MOST_REPEATS
        grown = min(1.0, max(0.0, epochs / single - 1))
        return 1 + int(grown * (MOST_REPEATS - 1))
