"""The interface between the training loop and a task: batches, a model, a loss and metrics."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Loss(NamedTuple):
    """The summed loss of a batch, so that batches of different sizes add up."""

    total: Tensor  # (), differentiable
    # number of target tokens, documents or nodes it was summed over
    count: int  # type: ignore[assignment]


class Task(Protocol):
    """Data, model, loss and metric. Any class with these members can be trained.

    A batch is a function of the epoch and the step alone: a resumed run takes the next one and
    replays nothing. Several processes share out the rows of a batch, a tensor or a tuple of
    tensors with as many rows; a task whose batches are something else has `divisible = False`.
    All randomness in `loss` comes from the global generators. `evaluate` shares its batches out
    with `shared`. `regard.tasks.TASKS` lists what a task needs besides, to be trained from a
    configuration.
    """

    unit: str  # what `Loss.count` counts, for display: "tokens"
    metric: str  # the metric of `evaluate` that selects the best checkpoint
    larger_is_better: bool

    def build(self) -> nn.Module:
        """A new model, initialised from torch's global generator."""

    def steps(self, epoch: int) -> int:
        """Number of batches in the epoch."""

    def batch(self, epoch: int, step: int) -> Any:
        """One batch of the epoch, in any form that `loss` understands."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss to be minimised; the model is in train mode."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics of validation data; the model is in eval mode."""

    def write(self, run: Path) -> None:
        """Write what is needed to use the model later, such as tokenizers, into the run."""

    def fingerprint(self) -> dict[str, str]:
        """Fingerprints of the data by name, by `regard.data.fingerprint`: {"train": "..."}.

        A resumed run must have the same.
        """

    def describe(self) -> str:
        """Statistics of the data, for display."""
