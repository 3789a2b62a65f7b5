"""Where a run stands, apart from its tensors: what `state.json` of a checkpoint holds."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Evaluation:
    """The figures of held-out data at some step."""

    step: int
    score: float  # the metric, so turned that larger is better; the lowest number for NaN
    figures: dict[str, float]


@dataclass
class State:
    """Position, history and what is not yet logged.

    Patience, plateaus, the best step and what is averaged all follow from `evaluations`.
    """

    step: int = 0  # of the optimizer, done
    epoch: int = 0  # of the next batch; so many are done
    batch: int = 0  # the next one of that epoch
    seconds: float = 0.0  # of all parts of the run
    loss: float = 0.0  # summed since the last line of metrics
    count: int = 0  # of what it was summed over
    total: int = 0  # the same since the run began
    evaluations: list[Evaluation] = field(default_factory=list)

    def epochs_begun(self) -> int:
        """The epoch of the last batch, counted from 1."""
        return self.epoch + (self.batch > 0)

    def scores(self) -> list[float]:
        """Of all evaluations; larger is better."""
        return [e.score for e in self.evaluations]

    def best(self) -> Evaluation | None:
        """The evaluation with the highest score; the first of equals."""
        return max(self.evaluations, key=lambda e: e.score, default=None)

    def stale(self) -> int:
        """How many evaluations there were since the best one.

        >>> scores = [1.0, 3.0, 2.0, 3.0]
        >>> State(evaluations=[Evaluation(i, s, {}) for i, s in enumerate(scores)]).stale()
        2
        """
        best = self.best()
        return 0 if best is None else sum(e.step > best.step for e in self.evaluations)

    def chosen(self, count: int, which: str) -> list[int]:
        """The steps whose weights make the model: the best or the last ones, upwards."""
        ranked = self.evaluations[::-1]
        if which == "best":
            ranked = sorted(self.evaluations, key=lambda e: (-e.score, e.step))
        return sorted(e.step for e in ranked[:count])

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it; floats come back to the bit."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "State":
        """The inverse of `to_json`."""
        evaluations = [Evaluation(**row) for row in values["evaluations"]]
        return cls(**{**values, "evaluations": evaluations})
