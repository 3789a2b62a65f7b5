"""The runs and checkpoints below the given folders, and their models."""

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.tasks import PretrainedPredictor, load
from regard.tasks.pretrained import is_checkpoint
from regard.training import read_run_config
from regard.training.metrics import read_metrics
from regard.training.weights import put_weights, read_tensors

MOST_RUNS = 500
MOST_LOADED = 6  # models in memory
SHOWN_EXAMPLES = 12
PATTERNS = ("*", "*/*")


class Runs:
    """The runs that can be opened: run directories, checkpoints, or folders that contain some.

    Args:
        folders: what was given on the command line
        home: the folder of new runs, which is created when the first training starts
    """

    def __init__(self, folders: Sequence[Path], home: Path) -> None:
        self.folders, self.home = [*folders, home], home
        self._found: dict[str, Path] = {}
        self._examples: dict[str, tuple[Any, list[Any]]] = {}
        self._loaded: OrderedDict[tuple[Path, int | None], tuple[float, Any]] = OrderedDict()

    def find(self) -> dict[str, Path]:
        """Return every run by its name: the folder of the run, with its parent if two are alike."""
        found: dict[str, Path] = {}
        known: set[Path] = set()
        for run in self._directories():
            if run in known or len(found) == MOST_RUNS:
                continue
            known.add(run)
            name = run.name if run.name not in found else f"{run.parent.name}/{run.name}"
            found.setdefault(name, run)
        self._found = found
        return found

    def path(self, name: str) -> Path:
        """Return the directory of a run of the list.

        Raises:
            FileNotFoundError: if no run below the folders has this name
            ValueError: if a file of the run is a link to somewhere else
        """
        run = self._known(name)
        check_links(run, "*", "checkpoints/*", "checkpoints/*/*")
        return run

    def _known(self, name: str) -> Path:
        """The directory of a run; the folders are read again if it is not known, or is gone."""
        run = self._found.get(name)
        if run is None or not is_run(run):
            run = self.find().get(name)
        if run is None:
            raise FileNotFoundError(f"no run named {name[:100]!r} below the given folders")
        return run

    def predictor(self, name: str, checkpoint: int | None = None) -> Any:
        """Return the predictor of a run, with the weights of a checkpoint if one is given."""
        run = self._known(name)
        weights = weights_of(run)
        if checkpoint is not None:
            weights = run / "checkpoints" / f"step-{checkpoint}" / "model.safetensors"
            if not weights.is_file():
                raise FileNotFoundError(f"{name} has no checkpoint of step {checkpoint}")
        changed = weights.stat().st_mtime if weights.is_file() else 0.0
        key = (run, checkpoint)
        if self._loaded.get(key, (None,))[0] != changed:
            predictor = load(self.path(name))
            if checkpoint is not None:
                put_weights(predictor.model, read_tensors(weights), source=weights.name)
            self._loaded[key] = changed, predictor
        self._loaded.move_to_end(key)
        while len(self._loaded) > MOST_LOADED:
            self._loaded.popitem(last=False)
            self._examples.clear()
        return self._loaded[key][1]

    def examples(self, name: str) -> list[Any]:
        """Return the first test examples of a run; none if its data is not here any more."""
        predictor = self.predictor(name)
        if self._examples.get(name, (None,))[0] is not predictor:
            try:
                found = predictor.examples(SHOWN_EXAMPLES)
            except (OSError, ValueError):
                found = []
            self._examples[name] = predictor, found
        return self._examples[name][1]

    def _directories(self) -> Iterator[Path]:
        """Run directories, resolved; a link that leads out of its folder is left out."""
        for folder in self.folders:
            root = folder.resolve()
            if is_run(root):
                yield root
                continue
            for run in sorted(each for pattern in PATTERNS for each in root.glob(pattern)):
                if is_run(run) and run.resolve().is_relative_to(root):
                    yield run.resolve()


def is_run(folder: Path) -> bool:
    """Whether a folder is a run directory or a checkpoint, with a configuration of its own."""
    is_pretrained = is_checkpoint(folder) and weights_of(folder).is_file()
    config = folder / ("config.json" if is_pretrained else "config.toml")
    return config.is_file() and config.resolve().is_relative_to(_home(folder.resolve()))


def weights_of(run: Path) -> Path:
    """The file of a run's weights; of a checkpoint in parts, their index."""
    index = run / "model.safetensors.index.json"
    return index if index.is_file() else run / "model.safetensors"


def check_links(run: Path, *patterns: str) -> None:
    """Raise `ValueError` if a file of a run is a link that leads out of it."""
    for file in (file for pattern in patterns for file in run.glob(pattern)):
        if not file.resolve().is_relative_to(_home(run)):
            raise ValueError(f"{run.name}: {file.name} is a link out of the run, which is refused")


def _home(run: Path) -> Path:
    """Where the files of a run are: in it, or, of a model of the hub, in its part of the cache."""
    return run.parents[1] if run.parent.name == "snapshots" else run


def checkpoints(run: Path) -> list[int]:
    """Return the steps of the checkpoints of a run, in order."""
    found = run.glob("checkpoints/step-*/model.safetensors")
    steps = (file.parent.name.removeprefix("step-") for file in found)
    return sorted(int(step) for step in steps if step.isdigit())


def read_log(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics; none if there are none, or the file is a link out."""
    file = run / "metrics.jsonl"
    is_own = file.is_file() and file.resolve().parent == run.resolve()
    return read_metrics(file) if is_own else []


def final_metrics(run: Path) -> dict[str, float]:
    """Return the metrics of the model of a run: at the end, or at its best evaluation so far."""
    found: dict[str, float] = {}
    for line in read_log(run):
        for prefix in ("model/", "valid/"):
            own = {k.removeprefix(prefix): v for k, v in line.items() if k.startswith(prefix)}
            found = {k: float(v) for k, v in own.items() if isinstance(v, int | float)} or found
    return found


def describe(run: Path) -> tuple[str, str]:
    """Return the task of a run and the kind of its model."""
    if is_checkpoint(run):
        about = json.loads((run / "config.json").read_text("utf-8"))
        if not isinstance(about, dict) or "model_type" not in about:
            raise ValueError(f"{run.name} is not a checkpoint of transformers")
        return PretrainedPredictor.task, str(about["model_type"])
    config = read_run_config(run)
    model = config.model
    name = str(model.get("kind", model.get("preset", config.task)))
    return config.task, f"{name} ({model['score']})" if "score" in model else name
