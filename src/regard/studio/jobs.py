"""Trainings as processes of their own: they go on without the studio, and are found again."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from regard.recipes import load_recipe
from regard.studio.messages import Point, Progress, Start
from regard.studio.runs import checkpoints, read_log
from regard.studio.settings import check_settings
from regard.system import posix
from regard.system.files import atomic_file
from regard.tasks import TASKS
from regard.training import read_config
from regard.training.run_directory import check_free
from regard.training.settings import read_settings
from regard.web import RequestError

FOLDER = ".studio"  # beside the runs: logs, process numbers and configurations of trainings
UPLOADS = "uploads"  # below it
ERROR = "regard: "  # how the command begins a sentence about an error
KILLED = "the training was killed before its first checkpoint"
MOST_RUNNING = 2
MOST_POINTS = 2000
DEFAULTS = ("training.keep=100", "training.log_every=10")  # for the slider and the curve


class Jobs:
    """The trainings below one folder.

    A training holds a lock on its log, which ends with it: that is how it is known to run,
    whatever started it or was restarted since. Where there are no such locks, its process is
    looked for.

    Args:
        home: the folder of new runs
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / FOLDER
        self.lock = threading.Lock()  # of starts: each counts those that run

    def names(self) -> list[str]:
        """Return the names of all trainings that the studio has started here."""
        return sorted(file.stem for file in self.folder.glob("*.json"))

    def start(
        self, given: Start, data: dict[str, Any] | None, find_run: Callable[[str], Path]
    ) -> str:
        """Start a training and return the name of its run; one that is refused leaves no file.

        Args:
            data: the configuration for an uploaded file, instead of a recipe
            find_run: as in `check_settings`

        Raises:
            ValueError: an unknown recipe or setting, or one that a request may not change
            FileExistsError: if there is a run of this name
        """
        if (given.recipe is None) == (data is None):
            raise RequestError(422, "give either a recipe or an uploaded file", "recipe")
        tables = data if data is not None else load_recipe(str(given.recipe))
        try:
            settings = check_settings(tables["task"], given.settings, find_run)
            config = read_config(tables, [*DEFAULTS, *settings])
            for name, kind in TASKS[config.task].tables:  # before a process starts
                read_settings(kind, getattr(config, name), name)
        except ValueError as error:
            raise RequestError(422, str(error), "settings") from error
        run = self.home / given.name
        with self.lock:
            try:
                check_free(run)
            except FileExistsError as error:
                taken = f"there is a run named {given.name} already"
                raise RequestError(409, taken, "name") from error
            if self.is_alive(given.name):
                raise RequestError(409, f"{given.name} is training already", "name")
            self._check_room()
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / f"{given.name}.toml"
            values = config.model_dump(mode="json", exclude_none=True)
            file.write_text(tomli_w.dumps(values), "utf-8", newline="\n")
            self._spawn(given.name, [str(file), "--out", str(run)])
        return given.name

    def control(self, name: str, action: str) -> None:
        """Pause, resume or stop a training; one that is stopped saves its state first.

        Raises:
            RequestError: 409 if it is not in a state for that
        """
        state, record = self.state(name), self._record(name)
        if state not in ("running", "paused"):
            if action == "resume" and (self.home / name / "config.toml").is_file():
                if state == "finished":
                    raise RequestError(409, f"{name} is finished", "action")
                with self.lock:
                    self._check_room()
                    self._spawn(name, ["--resume", str(self.home / name)])
                return
            raise RequestError(409, f"{name} is not running", "action")
        if not record:
            raise RequestError(409, f"{name} was not started by the studio", "action")
        process = int(record["process"])
        if action == "pause":
            if not posix.can_pause():
                reason = "this system cannot pause a training: stop it, and resume it later"
                raise RequestError(409, reason, "action")
            posix.pause(process)
        else:
            posix.resume(process)
        if action == "stop":
            posix.interrupt(process)
        self._write(name, {**record, "paused": action == "pause"})

    def state(self, name: str) -> str:
        """Return "running", "paused", "finished", "stopped", "failed" or "unknown"."""
        if self.is_alive(name):
            return "paused" if self._record(name).get("paused") else "running"
        run = self.home / name
        if any("finished" in line for line in read_log(run)[-3:]):
            return "finished"
        if self._record(name) and (self._error(name) or not checkpoints(run)):
            return "failed"
        return "stopped" if checkpoints(run) else "unknown"

    def progress(self, name: str, after: int = 0) -> Progress:
        """Return how far a training is, with the lines of its log after so many."""
        run = self.home / name
        lines = read_log(run)
        points = [_point(line) for line in lines[after:]]
        state = self.state(name)
        metric = next((k for p in reversed(points) for k in p.valid if k != "loss"), None)
        return Progress(
            run=name,
            state=state,
            points=points[:: len(points) // MOST_POINTS + 1],
            known=len(lines),
            checkpoints=checkpoints(run),
            metric=metric,
            message=(self._error(name) or KILLED) if state == "failed" else None,
        )

    def is_alive(self, name: str) -> bool:
        """Return whether the process of a training is there."""
        log = self.folder / f"{name}.log"
        return log.is_file() and posix.is_running(int(self._record(name).get("process", 0)), log)

    def _check_room(self) -> None:
        running = sum(self.is_alive(each) for each in self.names())
        if running >= MOST_RUNNING:
            raise RequestError(409, f"{running} trainings are running: stop or finish one first")

    def _spawn(self, name: str, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "regard", "train", *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            child = posix.start_detached(command, log)
        threading.Thread(target=child.wait, daemon=True).start()  # leaves no zombie
        self._write(name, {"process": child.pid, "paused": False})

    def _write(self, name: str, record: dict[str, Any]) -> None:
        with atomic_file(self.folder / f"{name}.json") as part:
            part.write_text(json.dumps(record), "utf-8", newline="\n")

    def _record(self, name: str) -> dict[str, Any]:
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text("utf-8")) if file.is_file() else {}

    def _error(self, name: str) -> str | None:
        """The last line of the log, if it is an error of the command; without where uploads are."""
        file = self.folder / f"{name}.log"
        text = file.read_text("utf-8", "replace")[-4000:] if file.is_file() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        is_error = bool(lines) and lines[-1].startswith(ERROR)
        if not is_error:
            return None
        uploads = f"{(self.folder / UPLOADS).resolve()}/"
        return lines[-1].removeprefix(ERROR).replace(uploads, "")[:500]


def _point(line: dict[str, Any]) -> Point:
    valid = {
        name.removeprefix("valid/"): value
        for name, value in line.items()
        if name.startswith("valid/") and isinstance(value, int | float)
    }
    return Point(step=line["step"], seconds=line.get("seconds"), loss=line.get("loss"), valid=valid)
