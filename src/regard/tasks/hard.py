"""Find the marked digit: hard attention, which looks at one position, trained in three ways."""

from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import nn

from regard.data import fingerprint
from regard.data.marked import DIGITS, MARKS, Marked, marked_digits
from regard.layers.reinforce import reinforce_loss
from regard.models.hard import HardReader
from regard.tasks.finder import Finder
from regard.tasks.run import load_weights
from regard.training import Loss
from regard.training.config import Config
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]


class Data(Settings):
    """The table `[data]`: rows of digits, all generated."""

    count: Count = Field(20_000, description="rows for training")
    held_out: Count = Field(2000, description="rows for validation")
    shortest: Count = Field(5, description="digits of a row")
    longest: Count = 17
    rows: Count = Field(100, description="rows of a batch")

    @model_validator(mode="after")
    def _ordered(self) -> "Data":
        if self.longest < self.shortest:
            raise ValueError(f"longest={self.longest} is below shortest={self.shortest}")
        return self


class Model(Settings):
    """The table `[model]`."""

    dim: Count = 32
    estimator: Literal["straight_through", "gumbel", "reinforce"] = Field(
        "straight_through", description="how the choice is trained"
    )
    temperature: float = Field(1.0, gt=0, description="of gumbel")


class LossSettings(Settings):
    """The table `[loss]`."""

    entropy_weight: float = Field(
        0.01, ge=0, description="reinforce: how much a choice that stays open is worth"
    )


class HardTask:
    """The task of the marked digit.

    The reader is told the digit, never the position. With "reinforce" a choice is rewarded by
    the log-probability of the digit that came of it, as in Xu et al. 2015, section 4.1.

    Args:
        data: how many rows, and how long
        model: sizes, and the estimator
        loss: how it is trained
        seed: of the rows and of their order
    """

    unit = "rows"
    metric = "right_choice"
    larger_is_better = True

    def __init__(self, data: Data, model: Model, loss: LossSettings, seed: int = 1) -> None:
        self.data, self.model, self.loss_settings, self.seed = data, model, loss, seed
        sizes = {"shortest": data.shortest, "longest": data.longest, "seed": seed}
        self.train = marked_digits(data.count, "train", **sizes)
        self.valid = marked_digits(data.held_out, "valid", **sizes)

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "HardTask":
        """The task of a configuration; a run has nothing of its own."""
        return cls(
            read_settings(Data, config.data, "data"),
            read_settings(Model, config.model, "model"),
            read_settings(LossSettings, config.loss, "loss"),
            config.seed,
        )

    @classmethod
    def open(cls, run: Path) -> Finder:
        """What `regard.load` gives for a run of this task."""
        model = read_settings(Model, read_run_config(run).model, "model")
        return Finder(load_weights(_build(model), run))

    def build(self) -> nn.Module:
        """A fresh reader."""
        return _build(self.model)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return -(-self.data.count // self.data.rows)

    def batch(self, epoch: int, step: int) -> Marked:
        """One batch of the epoch's order."""
        draw = torch.Generator().manual_seed(self.seed * 100_003 + epoch)
        order = torch.randperm(self.data.count, generator=draw)
        index = order[step * self.data.rows : (step + 1) * self.data.rows]
        return Marked(*(part[index] for part in self.train))

    def loss(self, model: nn.Module, batch: Marked) -> Loss:
        """Cross entropy of the digit, and what REINFORCE adds for the choice."""
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
        """The loss, the share of right choices, and the share of right digits."""
        valid = self.valid
        found = model(valid.digits, valid.marks, valid.lengths)
        return {
            "loss": float(F.cross_entropy(found.logits, valid.digit)),
            "right_choice": float((found.chosen == valid.position).float().mean()),
            "accuracy": float((found.logits.argmax(-1) == valid.digit).float().mean()),
        }

    def write(self, run: Path) -> None:
        """Nothing: digits and marks are the same in every run."""

    def fingerprint(self) -> dict[str, str]:
        """Fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}

    def describe(self) -> str:
        """Statistics of the rows, for people."""
        data = self.data
        chance = float((1 / self.valid.lengths).mean())
        return (
            f"{data.count:,} rows of {data.shortest} to {data.longest} digits with {MARKS} kinds "
            f"of marks for training, {data.held_out:,} for validation\n"
            f"by chance {chance:.1%} of choices are right and 10 % of digits"
        )


def _build(model: Model) -> HardReader:
    return HardReader(DIGITS, MARKS, **model.model_dump())
