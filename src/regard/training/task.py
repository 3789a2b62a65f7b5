"""What the training loop asks of a task: batches, a model, a loss, and how good it is."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Loss(NamedTuple):
    """The loss of a batch, summed, so that batches of different sizes add up."""

    total: Tensor  # (), differentiable
    # of what it was summed over: target tokens, documents, nodes
    count: int  # type: ignore[assignment]


class Task(Protocol):
    """Data, model, loss and metric; a class like this is all that a new task has to be.

    A batch is a function of the epoch and the step alone: a resumed run asks for the next one and
    replays nothing. All that is random in `loss` comes from torch's global generator.
    """

    unit: str  # what `Loss.count` counts, for people: "tokens"
    metric: str  # the figure of `evaluate` that chooses the best checkpoint
    larger_is_better: bool

    def build(self) -> nn.Module:
        """A fresh model, initialised from torch's global generator."""

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""

    def batch(self, epoch: int, step: int) -> Any:
        """One batch of the epoch, whatever `loss` understands."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The loss to be minimised; the model is in train mode."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Figures of held-out data, the metric among them; the model is in eval mode."""

    def write(self, run: Path) -> None:
        """Put what is needed to use the model later, such as tokenizers, into the run directory."""

    def describe(self) -> str:
        """Statistics of the data, for people."""
