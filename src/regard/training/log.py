"""What a run says as it goes: to `metrics.jsonl`, to TensorBoard and to a person."""

import time
from pathlib import Path
from typing import Self

from regard.training.config import Training
from regard.training.metrics import Metrics
from regard.training.progress import Progress
from regard.training.state import Evaluation, State
from regard.training.task import Task


class Log:
    """Takes the figures of every step and evaluation, and keeps the time.

    Args:
        run: the run's folder
        state: where the run stands; its time, sums and evaluations are kept here
        task: whose unit and metric are named
        last: the last step, if it is known
        show: who is told
    """

    def __init__(
        self,
        run: Path,
        state: State,
        options: Training,
        task: Task,
        last: int | None,
        show: Progress,
    ) -> None:
        self.metrics = Metrics(run, state.step)
        self.state, self.options, self.task, self.last, self.show = state, options, task, last, show
        self.first_step, self.seconds_before = state.step, state.seconds
        self.began = time.perf_counter()
        self.stretch_began, self.stretch_count = self.began, 0  # since a line or an evaluation

    def step(self, lr: float, loss: float, count: int, norm: float) -> None:
        """A step was made, its loss summed over `count`."""
        state, now = self.state, self._now()
        state.loss += loss
        state.count += count
        state.total += count
        self.stretch_count += count
        speed = self.stretch_count / max(now - self.stretch_began, 1e-9)
        self.show.step(state, loss / count, speed, self._left(now))
        if state.step % self.options.log_every == 0:
            unit = self.task.unit
            self.metrics.write(
                state.step,
                epoch=state.epochs_begun(),
                loss=state.loss / state.count,
                lr=lr,
                norm=norm,
                seconds=round(state.seconds, 3),
                **{unit: state.total, f"{unit}_per_second": round(speed, 1)},
            )
            state.loss, state.count = 0.0, 0
            self.stretch_began, self.stretch_count = now, 0

    def evaluation(self, found: Evaluation) -> None:
        """The model was evaluated."""
        self.stretch_began, self.stretch_count = self._now(), 0
        self.state.evaluations.append(found)
        self.metrics.write(
            self.state.step,
            epoch=self.state.epochs_begun(),
            seconds=round(self.state.seconds, 3),
            **{f"valid/{name}": value for name, value in found.figures.items()},
        )
        self.show.evaluated(self.state, found)

    def _now(self) -> float:
        now = time.perf_counter()
        self.state.seconds = self.seconds_before + now - self.began
        return now

    def _left(self, now: float) -> float:
        """Seconds to the end at the pace of this part, if patience does not end the run."""
        ends = []
        if self.last is not None:
            pace = (now - self.began) / (self.state.step - self.first_step)
            ends.append(pace * (self.last - self.state.step))
        if self.options.minutes is not None:
            ends.append(self.options.minutes * 60 - self.state.seconds)
        return max(0.0, min(ends))

    def __enter__(self) -> Self:
        self.show.start(self.state, self.last, self.task.unit, self.task.metric)
        return self

    def __exit__(self, *error: object) -> None:
        self.show.stop()
        self.metrics.close()
