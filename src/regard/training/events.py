"""Scalars for TensorBoard, if it is installed."""

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self


class Events:
    """Writes event files into a folder; steps after `step`, of a killed part, are taken back."""

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.summary = event_pb2, summary_pb2
        folder.mkdir(exist_ok=True)
        now = time.time_ns()
        name = f"events.out.tfevents.{now // 10**9}.{os.getpid()}.{now % 10**9}"
        self.records = RecordWriter((folder / name).open("ab"))
        self._put(file_version="brain.Event:2")
        if step:
            started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._put(step=step + 1, session_log=started)

    @classmethod
    def open(cls, folder: Path, step: int) -> Self | None:
        """A writer, or None without TensorBoard."""
        return None if find_spec("tensorboard") is None else cls(folder, step)

    def write(self, step: int, figures: dict[str, float]) -> None:
        """Scalars of a step by name."""
        value = self.summary.Summary.Value
        values = [value(tag=tag, simple_value=number) for tag, number in figures.items()]
        self._put(step=step, summary=self.summary.Summary(value=values))
        self.records.flush()

    def close(self) -> None:
        """Close the file."""
        self.records.close()

    def _put(self, **fields: Any) -> None:
        event = self.event.Event(wall_time=time.time(), **fields)
        self.records.write(event.SerializeToString())
