"""The position and history of a run, stored in `state.json` of each checkpoint."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Evaluation:
    """Metrics of validation data after some step."""

    step: int
    score: float  # the selecting metric, negated if smaller is better; the lowest float for NaN
    metrics: dict[str, float]


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

    def scores(self) -> list[float]:
        """Scores of all evaluations; larger is better."""
        return [e.score for e in self.evaluations]

    def best(self) -> Evaluation | None:
        """The evaluation with the highest score; the first of equals."""
        return max(self.evaluations, key=lambda e: e.score, default=None)

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
            ranked = sorted(self.evaluations, key=lambda e: (-e.score, e.step))
        return sorted(e.step for e in ranked[:count])

    def to_json(self) -> dict[str, Any]:
        """The state in types that JSON can represent; floats are exact."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "State":
        """The inverse of `to_json`."""
        evaluations = [Evaluation(**row) for row in values["evaluations"]]
        return cls(**{**values, "evaluations": evaluations})
