"""Figures of a run as it goes: `metrics.jsonl`, and the same for TensorBoard."""

import json
import math
from pathlib import Path
from typing import Any

from regard.core.files import atomic_file
from regard.training.events import Events

FINAL = ("averaged", "finished")  # keys of lines that belong to an end which may be put off


class Metrics:
    """Appends lines to `metrics.jsonl`, from a step on: later lines, of a killed part, are dropped.

    Args:
        run: the run's folder
        step: where the run stands
    """

    def __init__(self, run: Path, step: int) -> None:
        path = run / "metrics.jsonl"
        if path.exists():
            kept = [line for line in read_metrics(path) if line["step"] <= step]
            with atomic_file(path) as part:
                part.write_text("".join(map(_text, without_end(kept))), encoding="utf-8")
        self.file = path.open("a", encoding="utf-8")
        self.events = Events.open(run / "events", step)

    def write(self, step: int, **figures: Any) -> None:
        """One line, on the disk's way at once; numbers also become TensorBoard's scalars."""
        self.file.write(_text({"step": step, **figures}))
        self.file.flush()
        if self.events is not None:
            self.events.write(step, {k: v for k, v in figures.items() if isinstance(v, float)})

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        if self.events is not None:
            self.events.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`; one that was cut off by a kill is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def without_end(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines but those that say how the run ended: a resumed run may go further."""
    return [line for line in lines if not any(key in line for key in FINAL)]


def _text(line: dict[str, Any]) -> str:
    finite = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()
    }
    return json.dumps(finite, ensure_ascii=False) + "\n"
