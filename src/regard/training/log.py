"""What a run says as it goes: to `metrics.jsonl`, to TensorBoard and to a person."""

import time
from pathlib import Path
from typing import Self

from regard.training.config import Training
from regard.training.metrics import Metrics
from regard.training.progress import Progress
from regard.training.state import Evaluation, State


class Log:
    """Takes the figures of every step and evaluation, and keeps the time.

    Args:
        run: the run's folder
        state: where the run stands; its time, counts and evaluations are kept here
        unit: what the loss counts
        last: the last step, if it is known
        show: who is told
    """

    def __init__(
        self,
        run: Path,
        state: State,
        options: Training,
        unit: str,
        last: int | None,
        show: Progress,
    ) -> None:
        self.metrics = Metrics(run, state.step)
        self.state, self.every, self.unit, self.show = state, options.log_every, unit, show
        show.start(state, last, unit)
        self.before = state.seconds
        self.began = time.perf_counter()
        self.steps_began, self.steps_count = self.began, 0  # what the speed is measured over

    def step(self, lr: float, loss: float, count: int, norm: float) -> None:
        """A step was made; loss is summed over `count`."""
        state = self.state
        now = time.perf_counter()
        state.seconds = self.before + now - self.began
        state.loss += loss
        state.count += count
        state.total += count
        self.steps_count += count
        speed = self.steps_count / max(now - self.steps_began, 1e-9)
        self.show.step(state, loss / count, speed)
        if state.step % self.every == 0:
            self.metrics.write(
                state.step,
                epoch=state.epochs_begun(),
                loss=state.loss / state.count,
                lr=lr,
                norm=norm,
                seconds=round(state.seconds, 3),
                **{self.unit: state.total, f"{self.unit}_per_second": round(speed, 1)},
            )
            state.loss, state.count = 0.0, 0
            self.steps_began, self.steps_count = now, 0

    def evaluation(self, found: Evaluation) -> None:
        """The model was evaluated."""
        state = self.state
        now = time.perf_counter()
        state.seconds = self.before + now - self.began
        state.evaluations.append(found)
        self.metrics.write(
            state.step,
            epoch=state.epochs_begun(),
            seconds=round(state.seconds, 3),
            **{f"valid/{name}": value for name, value in found.figures.items()},
        )
        self.show.evaluated(found, best=state.best() is found)
        self.steps_began, self.steps_count = now, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.show.stop()
        self.metrics.close()
