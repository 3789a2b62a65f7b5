"""What a person sees of a run: plain lines, or nothing; a bar is in `bar.py`."""

import time
from typing import Protocol, TextIO

from regard.training.state import Evaluation, State

PAUSE = 5.0  # seconds between lines about steps


class Progress(Protocol):
    """Who is told what happens."""

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None:
        """The run begins, or goes on.

        Args:
            last: its last step, if that is known
            unit: what the loss counts, such as tokens
            metric: which of the figures chooses the best model
        """

    def step(self, state: State, loss: float, speed: float, left: float) -> None:
        """A step was made.

        Args:
            loss: its mean
            speed: how many of the unit in a second
            left: seconds to the end of the run, if patience does not end it
        """

    def evaluated(self, state: State, found: Evaluation) -> None:
        """The model was evaluated."""

    def stop(self) -> None:
        """There are no more steps."""


class Silent:
    """Shows nothing."""

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None: ...

    def step(self, state: State, loss: float, speed: float, left: float) -> None: ...

    def evaluated(self, state: State, found: Evaluation) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """Plain lines, for a log file: every evaluation, and a step now and then."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.last: int | None = None
        self.unit = self.metric = ""
        self.next = 0.0

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None:
        self.last, self.unit, self.metric = last, unit, metric
        self.next = time.monotonic() + PAUSE
        if state.step:
            self._print(f"going on after {position(state, last)}")

    def step(self, state: State, loss: float, speed: float, left: float) -> None:
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + PAUSE
            self._print(
                f"{position(state, self.last)} · {pace(loss, speed, self.unit)}"
                f"{record(state, self.metric)} · {duration(left)} left"
            )

    def evaluated(self, state: State, found: Evaluation) -> None:
        self._print(f"{position(state, self.last)} · {judgement(state, found)}")

    def stop(self) -> None: ...

    def _print(self, line: str) -> None:
        print(line, file=self.stream, flush=True)


def position(state: State, last: int | None) -> str:
    """Where the run stands.

    >>> position(State(step=1200, epoch=2, batch=3), 2000)
    'step 1,200 of 2,000 · epoch 3'
    """
    of = f" of {last:,}" if last is not None else ""
    return f"step {state.step:,}{of} · epoch {max(1, state.epochs_begun())}"


def pace(loss: float, speed: float, unit: str) -> str:
    """How well and how fast it learns."""
    return f"loss {loss:.4f} · {speed:,.0f} {unit}/s"


def record(state: State, metric: str) -> str:
    """The best value of the metric so far, if there is one."""
    best = state.best()
    return "" if best is None else f" · best {metric} {best.figures[metric]:.4f}"


def judgement(state: State, found: Evaluation) -> str:
    """What an evaluation found."""
    figures = ", ".join(f"{name} {value:.4f}" for name, value in found.figures.items())
    return f"valid {figures}{' (best so far)' if state.best() is found else ''}"


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> [duration(seconds) for seconds in (0.25, 34, 754, 4000)]
    ['0 s', '34 s', '12 min 34 s', '1 h 6 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
