"""The position and history of a run, stored in `state.json` of each checkpoint."""

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any


@dataclass
class Evaluation:
    """Metrics of validation data after some step."""

    step: int
    score: float  # the selecting metric, negated if smaller is better; the lowest float for NaN
    metrics: dict[str, float]

    @property
    def rank(self) -> tuple[float, float]:
        """What evaluations are compared by; larger is better.

        A score of 0 tells nothing, as BLEU and exact match do at first: then the loss decides.

        >>> Evaluation(2, 0.0, {"exact": 0.0, "loss": 0.3}).rank
        (0.0, -0.3)
        >>> Evaluation(3, 0.1, {"exact": 0.1, "loss": 0.3}).rank
        (0.1, 0.0)
        """
        loss = self.metrics.get("loss", 0.0) if self.score == 0 else 0.0
        return self.score, 0.0 - loss if isfinite(loss) else float("-inf")


@dataclass
class State:
    """Position, history, and the loss that is not logged yet.

    Patience, plateaus, the best step and the averaged steps all follow from `evaluations`.
    """

    step: int = 0  # optimizer steps done
    epoch: int = 0  # epochs done
    batch: int = 0  # next batch of the current epoch
    seconds: float = 0.0  # of all sessions of the run
    loss: float = 0.0  # summed since the last line of metrics.jsonl
    count: int = 0  # what it was summed over
    total: int = 0  # the same since the run began
    scale: float = 1.0  # of the loss before its gradient is taken, in float16
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def current_epoch(self) -> int:
        """The epoch of the last batch, counted from 1."""
        return self.epoch + (self.batch > 0)

    @property
    def evaluated(self) -> bool:
        """Whether the model was evaluated after the last step."""
        return bool(self.evaluations) and self.evaluations[-1].step == self.step

    def ranks(self) -> list[tuple[float, float]]:
        """What all evaluations are compared by; larger is better."""
        return [e.rank for e in self.evaluations]

    def best(self) -> Evaluation | None:
        """The evaluation of the highest rank; the first of equals."""
        return max(self.evaluations, key=lambda e: e.rank, default=None)

    def evaluations_since_best(self) -> int:
        """Number of evaluations after the best one.

        >>> scores = [1.0, 3.0, 2.0, 3.0]
        >>> evaluations = [Evaluation(i, s, {}) for i, s in enumerate(scores)]
        >>> State(evaluations=evaluations).evaluations_since_best()
        2
        """
        best = self.best()
        return 0 if best is None else sum(e.step > best.step for e in self.evaluations)

    def chosen(self, count: int, which: str) -> list[int]:
        """The steps whose weights are averaged, the best or the last ones, in ascending order."""
        ranked = self.evaluations[::-1]
        if which == "best":
            ranked = sorted(self.evaluations, key=lambda e: e.rank, reverse=True)
        return sorted(e.step for e in ranked[:count])

    def to_json(self) -> dict[str, Any]:
        """The state in types that JSON can represent; floats are exact."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "State":
        """The inverse of `to_json`."""
        evaluations = [Evaluation(**row) for row in values["evaluations"]]
        return cls(**{**values, "evaluations": evaluations})
