"""Metrics of a run as it goes: `metrics.jsonl`, TensorBoard, and the progress display."""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from regard.system.files import atomic_file, named_errors
from regard.training.config import Training
from regard.training.progress import Progress, Silent
from regard.training.state import Evaluation, State
from regard.training.task import Task

FINAL = ("averaged", "finished")  # keys of lines about the end of a run


class Metrics:
    """Appends lines to `metrics.jsonl`; lines after the state, of a killed session, are dropped."""

    def __init__(self, run: Path, state: State) -> None:
        path = run / "metrics.jsonl"
        if path.exists():
            kept = [line for line in read_metrics(path) if _belongs(line, state)]
            with atomic_file(path) as part:
                part.write_text("".join(map(_text, kept)), encoding="utf-8", newline="\n")
        self.file = path.open("a", encoding="utf-8", newline="\n")
        self.events = _tensorboard(run / "events", state.step)

    def write(self, step: int, **values: Any) -> None:
        """Append a line and flush it; floats also become TensorBoard scalars."""
        with named_errors(Path(self.file.name)):
            self.file.write(_text({"step": step, **values}))
            self.file.flush()
        if self.events is not None:
            self.events.write(step, {k: v for k, v in values.items() if isinstance(v, float)})

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        if self.events is not None:
            self.events.close()


class NoMetrics(Metrics):
    """Writes nothing: the first of several processes does."""

    def __init__(self) -> None: ...

    def write(self, step: int, **values: Any) -> None: ...

    def close(self) -> None: ...


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`; a last line that was cut off by a kill is left out.

    Raises:
        ValueError: if a line is damaged
    """
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
            row["step"] += 0
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"{path} is damaged in line {number}: remove that line, or the file, which is a log"
            ) from error
        rows.append(row)
    return rows


class Log:
    """Records every step and evaluation, and measures time.

    Args:
        metrics: written to, and closed at the end
        state: of the run; its time, sums and evaluations are updated here
        task: for the names of its unit and metric
        last: the last step, if it is known
        progress: the display; if it fails, training continues without it
    """

    def __init__(
        self,
        metrics: Metrics,
        state: State,
        options: Training,
        task: Task,
        last: int | None,
        progress: Progress,
    ) -> None:
        self.metrics = metrics
        self.state, self.options, self.task, self.last = state, options, task, last
        self.progress = progress
        self.first_step, self.seconds_before = state.step, state.seconds
        self.began = time.perf_counter()
        self.interval_began, self.interval_count = self.began, 0  # since a line or an evaluation
        self.warm = self.began  # the end of the first step, which compiles

    def step(self, lr: float, loss: float, count: int, norm: float) -> None:
        """Record a step whose loss was summed over `count`."""
        state, now = self.state, self._now()
        state.loss += loss
        state.count += count
        state.total += count
        self.interval_count += count
        speed = self.interval_count / max(now - self.interval_began, 1e-9)
        if state.step == self.first_step + 1:
            self.warm = now
        else:
            left = self._seconds_left(now)
            self._show(lambda progress: progress.step(state, loss / count, speed, left))
        if state.step % self.options.log_every == 0:
            unit = self.task.unit
            self.metrics.write(
                state.step,
                epoch=state.current_epoch,
                loss=state.loss / state.count,
                lr=lr,
                norm=norm,
                seconds=round(state.seconds, 3),
                **{unit: state.total, f"{unit}_per_second": round(speed, 1)},
            )
            state.loss, state.count = 0.0, 0
        if self.warm == now or state.step % self.options.log_every == 0:
            self.interval_began, self.interval_count = now, 0

    def evaluation(self, evaluation: Evaluation) -> None:
        """Record an evaluation."""
        self.interval_began, self.interval_count = self._now(), 0
        self.state.evaluations.append(evaluation)
        self.metrics.write(
            self.state.step,
            epoch=self.state.current_epoch,
            seconds=round(self.state.seconds, 3),
            **{f"valid/{name}": value for name, value in evaluation.metrics.items()},
        )
        self._show(lambda progress: progress.evaluated(self.state, evaluation))

    def __enter__(self) -> Self:
        unit, metric = self.task.unit, self.task.metric
        self._show(lambda progress: progress.start(self.state, self.last, unit, metric))
        return self

    def __exit__(self, *error: object) -> None:
        self._show(lambda progress: progress.stop())
        self.metrics.close()

    def _show(self, event: Callable[[Progress], None]) -> None:
        """Update the display; a display that fails, on a closed pipe say, is not used again."""
        try:
            event(self.progress)
        except Exception:
            self.progress = Silent()

    def _now(self) -> float:
        now = time.perf_counter()
        self.state.seconds = self.seconds_before + now - self.began
        return now

    def _seconds_left(self, now: float) -> float:
        """Seconds to the end at the pace of this session, if patience does not end the run."""
        ends = []
        if self.last is not None:
            pace = (now - self.warm) / (self.state.step - self.first_step - 1)
            ends.append(pace * (self.last - self.state.step))
        if self.options.minutes is not None:
            ends.append(self.options.minutes * 60 - self.state.seconds)
        return max(0.0, min(ends))


class _Events:
    """Writes TensorBoard event files; steps after `step`, of a killed session, are purged."""

    def __init__(self, directory: Path, step: int) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.summary = event_pb2, summary_pb2
        directory.mkdir(exist_ok=True)
        now = time.time_ns()
        name = f"events.out.tfevents.{now // 10**9}.{os.getpid()}.{now % 10**9}"
        self.records = RecordWriter((directory / name).open("ab"))
        self._put(file_version="brain.Event:2")
        if step:
            started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._put(step=step + 1, session_log=started)

    def write(self, step: int, scalars: dict[str, float]) -> None:
        value = self.summary.Summary.Value
        values = [value(tag=tag, simple_value=number) for tag, number in scalars.items()]
        self._put(step=step, summary=self.summary.Summary(value=values))
        self.records.flush()

    def close(self) -> None:
        self.records.close()

    def _put(self, **fields: Any) -> None:
        event = self.event.Event(wall_time=time.time(), **fields)
        self.records.write(event.SerializeToString())


def _tensorboard(directory: Path, step: int) -> _Events | None:
    """A writer, or None if TensorBoard is not installed or does not work."""
    try:
        return _Events(directory, step)
    except Exception:
        return None


def _belongs(line: dict[str, Any], state: State) -> bool:
    """Whether a line is of the state's past: not later, not about the end, not to be repeated."""
    if line["step"] > state.step or any(key in line for key in FINAL):
        return False
    repeated = line["step"] == state.step and not state.evaluated
    return not (repeated and any(key.startswith("valid/") for key in line))


def _text(line: dict[str, Any]) -> str:
    finite = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()
    }
    return json.dumps(finite, ensure_ascii=False) + "\n"
