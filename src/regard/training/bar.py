"""A bar in the terminal: how far, how well, how fast, how long still."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from regard.training.progress import duration, judgement, pace, position, record
from regard.training.state import Evaluation, State


class Bar:
    """One line that is drawn anew, below a line for every evaluation."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[pace]}"),
            console=console,
            refresh_per_second=4,
            transient=True,
            expand=True,
        )
        self.task: TaskID | None = None
        self.last: int | None = None
        self.unit = self.metric = ""

    def start(self, state: State, last: int | None, unit: str, metric: str) -> None:
        self.last, self.unit, self.metric = last, unit, metric
        self.task = self.progress.add_task(position(state, last), total=1.0, pace="")
        self.progress.start()

    def step(self, state: State, loss: float, speed: float, left: float) -> None:
        assert self.task is not None
        share = state.seconds / max(state.seconds + left, 1e-9)
        best = record(state, self.metric)
        text = f"{pace(loss, speed, self.unit)}{best} · {duration(left)} left"
        where = position(state, self.last)
        self.progress.update(self.task, completed=share, description=where, pace=text)

    def evaluated(self, state: State, found: Evaluation) -> None:
        self.progress.print(f"{position(state, self.last)} · {judgement(state, found)}")

    def stop(self) -> None:
        self.progress.stop()
