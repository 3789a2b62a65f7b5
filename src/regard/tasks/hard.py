"""Find the marked digit: hard attention, which attends to one position, trained in three ways."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.core.map import AttentionMap
from regard.data.sequences import DIGITS, MARKS, Marked, marked_digits
from regard.layers.hard import reinforce_loss
from regard.models.hard import HardReader
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.run import load_model
from regard.tasks.settings import ConfiguredTask, Count
from regard.trace import Call, Trace
from regard.training import Config, Loss, Settings, read_settings
from regard.training.processes import shared, summed
from regard.training.run_directory import read_run_config

SIGNS = ("*", "", "′", "″", "‴")
"""How marks are written; the first is the one to find."""
Row = tuple[Sequence[int], Sequence[int]]  # digits, 0 to 9, and as many marks, 0 to 4


class Data(Settings):
    """The table `[data]`: rows of digits, all generated."""

    count: Count = Field(20_000, description="rows for training")
    held_out: Count = Field(2000, description="rows for validation")
    shortest: Count = Field(5, description="digits of a row")
    longest: Count = Field(17, description="most digits of a row")
    rows: Count = Field(100, description="rows of a batch")

    @model_validator(mode="after")
    def _ordered(self) -> "Data":
        if self.longest < self.shortest:
            raise ValueError(f"longest={self.longest} is below shortest={self.shortest}")
        return self


class Model(Settings):
    """The table `[model]`."""

    dim: Count = Field(32, description="width of the layers")
    estimator: Literal["straight_through", "gumbel", "reinforce"] = Field(
        "straight_through", description="how the choice is trained"
    )
    temperature: float = Field(1.0, gt=0, description="of gumbel")


class LossSettings(Settings):
    """The table `[loss]`."""

    entropy_weight: float = Field(
        0.01, ge=0, description="reinforce: weight of the entropy of the choice"
    )


class Reading(NamedTuple):
    """The position that was chosen, and the digit that was read there."""

    digit: int
    position: int
    probability: float  # of the position


class HardPredictor(Predictor):
    """A reader of rows of digits of which one is marked: a run of the task hard.

    An input is a row: its digits, and as many marks, of which 0 is the one to find.

    >>> (found,) = HardPredictor(HardReader(10, 5)).predict([([3, 1, 4], [1, 0, 2])])
    >>> 0 <= found.position < 3
    True

    Args:
        model: a `HardReader` of digits and marks
        config: of the run
    """

    task: ClassVar[str] = "hard"

    def __init__(self, model: nn.Module, config: Config | None = None) -> None:
        self.model: Any = model.eval()
        self.config = config

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "HardPredictor":
        """Load a run directory of the task hard."""
        config = read_run_config(directory)
        model = read_settings(Model, config.model, "model")
        return cls(load_model(partial(_build, model), directory, device), config)

    @torch.no_grad()
    def predict(self, inputs: Sequence[Row]) -> list[Reading]:
        """Return the position that the reader chooses in each row, and the digit it reads."""
        check_inputs(inputs, "rows")
        if not inputs:
            return []
        found = self.model(*self._batch(inputs))
        return [
            Reading(int(logits.argmax()), int(chosen), float(share.exp()))
            for logits, chosen, share in zip(
                found.logits, found.chosen, found.log_probability, strict=True
            )
        ]

    @torch.no_grad()
    def trace(self, input: Row) -> Trace:
        """Return the probability of each position of a row, and which one was chosen."""
        (found,) = self.predict([input])
        shares = self.model.probabilities(*self._batch([input])).cpu()  # (1, N)
        digits, marks = input
        symbols = [f"{digit}{SIGNS[mark]}" for digit, mark in zip(digits, marks, strict=True)]
        about = {
            "task": self.task,
            "title": self.to_text(found),
            "chosen": found.position,
            "marked": list(marks).index(0) if 0 in marks else found.position,
            "digit": found.digit,
        }
        calls = [Call("choice", AttentionMap.of(shares[None]), "row", "symbol")]
        return Trace(calls, {"row": ["row"], "symbol": symbols}, about)

    def parse(self, record: str | Mapping[str, Any]) -> Row:
        """Return the row of a line such as "3 1* 4′ 1″", or `digits` and `marks` of JSON."""
        if not isinstance(record, str):
            digits = field(record, "digits", kind=list)
            marks = field(record, "marks", kind=list)
        else:
            cells = record.split()
            if not all(cell[0] in "0123456789" and cell[1:] in SIGNS for cell in cells):
                raise ValueError(
                    f"expected digits with marks such as '3 1* 4′ 1″ 5‴', got {record!r}"
                )
            digits = [int(cell[0]) for cell in cells]
            marks = [SIGNS.index(cell[1:]) for cell in cells]
        _check_row(digits, marks, 1)
        return digits, marks

    def to_text(self, prediction: Reading) -> str:
        """Return the digit, its position counted from 1, and the probability of the position."""
        digit, position, share = prediction
        return f"{digit} at position {position + 1} ({share:.0%})"

    def examples(self, count: int, split: str = "test") -> list[Row]:
        """Return generated rows."""
        rows = marked_digits(count, split)
        return [
            (digits[:length], marks[:length])
            for digits, marks, length in zip(
                rows.digits.tolist(), rows.marks.tolist(), rows.lengths.tolist(), strict=True
            )
        ]

    def _batch(self, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        """Digits (B, N), marks (B, N) and lengths (B,)."""
        for number, (digits, marks) in enumerate(rows, start=1):
            _check_row(digits, marks, number)
        device = self.device
        padded = [
            nn.utils.rnn.pad_sequence([torch.tensor(row[i]) for row in rows], batch_first=True)
            for i in (0, 1)
        ]
        lengths = torch.tensor([len(row) for row, _ in rows])
        return tuple(part.to(device) for part in (*padded, lengths))


def _check_row(digits: Sequence[int], marks: Sequence[int], number: int) -> None:
    if len(digits) != len(marks) or not digits:
        raise ValueError(
            f"row {number}: {len(digits)} digits and {len(marks)} marks; expected as many of each, "
            "at least one"
        )
    for name, values, kinds in (("digits", digits, DIGITS), ("marks", marks, MARKS)):
        if not all(isinstance(v, int) and 0 <= v < kinds for v in values):
            raise ValueError(
                f"row {number}: {name} are whole numbers from 0 to {kinds - 1}, got {values}"
            )


def _build(model: Model) -> HardReader:
    return HardReader(DIGITS, MARKS, **model.model_dump())


class HardTask(ConfiguredTask):
    """Find the marked digit.

    The reader is trained on the digit, never on the position. With "reinforce" a choice is
    rewarded by the log-probability of the digit. Xu et al. 2015, section 4.1.

    Args:
        data: how many rows, and how long
        model: sizes, and the estimator
        loss: how it is trained
        seed: of the rows and of their order
        run: has nothing else to keep
    """

    predictor = HardPredictor
    tables = (("data", Data), ("model", Model), ("loss", LossSettings))
    unit = "rows"
    metric = "right_choice"
    larger_is_better = True

    def __init__(
        self, data: Data, model: Model, loss: LossSettings, seed: int = 1, run: Path | None = None
    ) -> None:
        self.data, self.model, self.loss_settings, self.seed = data, model, loss, seed
        sizes = {"shortest": data.shortest, "longest": data.longest, "seed": seed}
        self.train = marked_digits(data.count, "train", **sizes)
        self.valid = marked_digits(data.held_out, "valid", **sizes)

    def build(self) -> nn.Module:
        """Build a fresh reader."""
        return _build(self.model)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return -(-self.data.count // self.data.rows)

    def batch(self, epoch: int, step: int) -> Marked:
        """Return one batch of the epoch's order."""
        draw = torch.Generator().manual_seed(self.seed * 100_003 + epoch)
        order = torch.randperm(self.data.count, generator=draw)
        index = order[step * self.data.rows : (step + 1) * self.data.rows]
        return Marked(*(part[index] for part in self.train))

    def loss(self, model: nn.Module, batch: Marked) -> Loss:
        """Return the cross entropy of the digit, with REINFORCE's term for the choice."""
        assert isinstance(model, HardReader)
        found = model(batch.digits, batch.marks, batch.lengths)
        surprise = F.cross_entropy(found.logits, batch.digit, reduction="none")  # (B,)
        loss = surprise.mean()
        if model.estimator == "reinforce":
            reward = -surprise.detach()
            loss = loss + reinforce_loss(
                found.log_probability,
                reward,
                baseline=model.baseline(reward),
                entropy=found.entropy,
                entropy_weight=self.loss_settings.entropy_weight,
            )
        return Loss(loss * len(batch.digit), len(batch.digit))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return the loss, the share of right choices, and the share of right digits."""
        sums = [0.0, 0.0, 0.0]
        parts = zip(*(part.split(self.data.rows) for part in self.valid), strict=True)
        for batch in shared((Marked(*part) for part in parts), model):
            found = model(batch.digits, batch.marks, batch.lengths)
            sums[0] += float(F.cross_entropy(found.logits, batch.digit, reduction="sum"))
            sums[1] += int((found.chosen == batch.position).sum())
            sums[2] += int((found.logits.argmax(-1) == batch.digit).sum())
        means = [total / self.data.held_out for total in summed(*sums)]
        return dict(zip(("loss", "right_choice", "accuracy"), means, strict=True))

    def write(self, run: Path) -> None:
        """Store nothing: digits and marks are the same in every run."""

    def describe(self) -> str:
        """Return statistics of the rows, for people."""
        data = self.data
        chance = float((1 / self.valid.lengths).mean())
        return (
            f"{data.count:,} rows of {data.shortest} to {data.longest} digits with {MARKS} kinds "
            f"of marks for training, {data.held_out:,} for validation\n"
            f"by chance {chance:.1%} of choices are right and 10 % of digits"
        )
