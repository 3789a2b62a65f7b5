"""Displays of a running training: a bar in a terminal or a notebook, plain lines, or nothing."""

import sys
import time
import warnings
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from regard.training.state import Evaluation, State

if TYPE_CHECKING:
    from rich.console import Console

PAUSE = 5.0  # seconds between lines about steps
UPDATE = 0.5  # seconds between two updates of a notebook cell
WIDE, HIGH = 280, 90  # pixels of a curve
POINTS = 400  # of a curve; then every other one is left out


class Progress(Protocol):
    """Receives training events."""

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None:
        """The run starts or is resumed.

        Args:
            last: its last step, if that is known
            unit: what the loss counts, such as tokens
            metric: the one that selects the best model
        """

    def step(self, state: State, loss: float, speed: float, left: float) -> None:
        """A step was made.

        Args:
            loss: its mean
            speed: units per second
            left: seconds to the end of the run, if patience does not end it
        """

    def evaluated(self, state: State, evaluation: Evaluation) -> None:
        """The model was evaluated."""

    def message(self, text: str) -> None:
        """Something the user should know, such as another version of torch."""

    def stop(self) -> None:
        """There are no more steps."""


class Silent:
    """Displays nothing; messages become warnings."""

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None: ...

    def step(self, state: State, loss: float, speed: float, left: float) -> None: ...

    def evaluated(self, state: State, evaluation: Evaluation) -> None: ...

    def message(self, text: str) -> None:
        warnings.warn(text, stacklevel=2)

    def stop(self) -> None: ...


class Lines:
    """Plain lines, for a log file: every evaluation, and a step every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.last: int | None = None
        self.unit = self.metric = ""
        self.next = 0.0

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None:
        self.last, self.unit, self.metric = last, unit, metric
        self.next = time.monotonic() + PAUSE
        if state.step:
            self.message(f"resuming after {position(state, last)}")

    def step(self, state: State, loss: float, speed: float, left: float) -> None:
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + PAUSE
            pace = _pace(state, loss, speed, left, self.unit, self.metric)
            self.message(f"{position(state, self.last)} · {pace}")

    def evaluated(self, state: State, evaluation: Evaluation) -> None:
        self.message(f"{position(state, self.last)} · {_metrics(state, evaluation)}")

    def message(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def stop(self) -> None: ...


class Bar:
    """A progress bar of rich, below a line for every evaluation."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self.progress = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),  # what is left of the line
            TextColumn("{task.fields[pace]}"),
            console=console,
            refresh_per_second=4,
            transient=True,
            expand=True,
        )
        self.task = self.progress.add_task("", total=1.0, pace="", start=False)
        self.last: int | None = None
        self.unit = self.metric = ""

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None:
        self.last, self.unit, self.metric = last, unit, metric
        self.progress.update(self.task, description=position(state, last))
        self.progress.start_task(self.task)
        self.progress.start()

    def step(self, state: State, loss: float, speed: float, left: float) -> None:
        self.progress.update(
            self.task,
            completed=state.seconds / max(state.seconds + left, 1e-9),
            description=f"{state.step:,}/{self.last:,}" if self.last else f"{state.step:,}",
            pace=f"loss {loss:.4f} · {speed:,.0f} {self.unit}/s · {duration(left)} left",
        )

    def evaluated(self, state: State, evaluation: Evaluation) -> None:
        self.message(f"{position(state, self.last)} · {_metrics(state, evaluation)}")

    def message(self, text: str) -> None:
        self.progress.print(text, markup=False)

    def stop(self) -> None:
        self.progress.stop()


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; IPython is not imported for it."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class Cell:
    """A bar, the loss, and the metric of every evaluation, in the output of a notebook cell."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._handle: Any = display(HTML("preparing"), display_id=True)
        self._next = 0.0
        self._state = State()
        self.last: int | None = None
        self.unit = self.metric = self.pace = ""
        self.done = 0.0
        self.losses: list[tuple[float, float]] = []  # by step
        self.scores: list[tuple[float, float]] = []

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None:
        self.last, self.unit, self.metric = last, unit, metric
        self.scores = [(each.step, each.metrics[metric]) for each in state.evaluations]
        self._show(state)

    def step(self, state: State, loss: float, speed: float, left: float) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + UPDATE
            if len(self.losses) == POINTS:
                del self.losses[1::2]
            self.losses.append((state.step, loss))
            self.done = state.seconds / max(state.seconds + left, 1e-9)
            self.pace = f" · {speed:,.0f} {self.unit}/s · {duration(left)} left"
            self._show(state)

    def evaluated(self, state: State, evaluation: Evaluation) -> None:
        self.scores.append((state.step, evaluation.metrics[self.metric]))
        self._show(state)

    def message(self, text: str) -> None:
        warnings.warn(text, stacklevel=2)

    def stop(self) -> None:
        self.pace = ""
        self.done = 1.0 if self._state.step == self.last else self.done
        self._show(self._state)

    def _show(self, state: State) -> None:
        self._state = state
        bar = f'<progress style="width:100%" max="1" value="{self.done:.4f}"></progress>'
        curves = _curve(self.losses, "loss") + _curve(self.scores, self.metric)
        title = f"{position(state, self.last)}{self.pace}"
        style = "padding:.3em;background:#fff;color:#000;max-width:40em"
        self._handle.update(self._html(f'<div style="{style}">{title}<br>{bar}{curves}</div>'))


def position(state: State, last: int | None) -> str:
    """The step and epoch of a run.

    >>> position(State(step=1200, epoch=2, batch=3), 2000)
    'step 1,200 of 2,000 · epoch 3'
    """
    of = f" of {last:,}" if last is not None else ""
    return f"step {state.step:,}{of} · epoch {max(1, state.current_epoch)}"


def duration(seconds: float) -> str:
    """A length of time for display.

    >>> [duration(seconds) for seconds in (0.25, 34, 754, 4000)]
    ['0 s', '34 s', '12 min 34 s', '1 h 6 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _pace(state: State, loss: float, speed: float, left: float, unit: str, metric: str) -> str:
    best = state.best()
    so_far = "" if best is None else f" · best {metric} {best.metrics[metric]:.4f}"
    return f"loss {loss:.4f} · {speed:,.0f} {unit}/s{so_far} · {duration(left)} left"


def _metrics(state: State, evaluation: Evaluation) -> str:
    values = ", ".join(f"{name} {value:.4f}" for name, value in evaluation.metrics.items())
    return f"valid {values}{' (best so far)' if state.best() is evaluation else ''}"


def _curve(points: Sequence[tuple[float, float]], name: str) -> str:
    """A line through points, with its name, its last value and its range.

    >>> _curve([], "loss"), "<title>loss 0.5" in _curve([(1, 2.0), (2, 0.5)], "loss")
    ('', True)
    """
    known = [(x, y) for x, y in points if y - y == 0]  # neither NaN nor infinite
    if not known:
        return ""
    (left, right), (low, high) = ((min(each), max(each)) for each in zip(*known, strict=True))
    wide, tall = (right - left) or 1.0, (high - low) or 1.0
    places = [
        f"{5 + (x - left) / wide * (WIDE - 10):.1f},{HIGH - 5 - (y - low) / tall * (HIGH - 10):.1f}"
        for x, y in known
    ]
    x, y = places[-1].split(",")
    label = escape(f"{name} {known[-1][1]:.4g}  ({low:.4g} to {high:.4g})")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH + 16}" role="img" '
        f'font-family="sans-serif" font-size="11"><title>{label}</title>'
        f'<text x="5" y="11">{label}</text><g transform="translate(0 16)">'
        f'<polyline points="{" ".join(places)}" fill="none" stroke="#0a58b8" stroke-width="1.5"/>'
        f'<circle cx="{x}" cy="{y}" r="3" fill="#0a58b8"/></g></svg>'
    )
