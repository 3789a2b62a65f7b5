"""Run directories: load a predictor, its weights, its classes; train one from a recipe."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.core.names import did_you_mean
from regard.export import load_exported, read_export
from regard.tasks.predictor import Predictor
from regard.tasks.pretrained import PretrainedPredictor, is_checkpoint, load_pretrained
from regard.training.config import Config, load_toml, read_config
from regard.training.device import find_device
from regard.training.run_directory import MANIFEST, read_run_config, stored_file
from regard.training.settings import SettingsError
from regard.training.weights import put_weights, read_tensors

WEIGHTS, CLASSES = "model.safetensors", "classes.json"
LARGEST_JSON = 2**26  # bytes of a JSON file of a run
SPARE = 2**26  # elements of buffers that are computed and not stored, such as positions
TENSORS = 8  # tensors that building one tensor of a model makes, at most
RANDOM = {torch.rand, torch.randn}
SCALES = {torch.Tensor.div, torch.Tensor.mul, torch.Tensor.__rmul__}
MAKERS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange}

PredictorType = TypeVar("PredictorType", bound=Predictor)
BROKEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    RuntimeError,
    TypeError,
)
"""What hostile or damaged run directories make of code that expects whole ones."""


@overload
def load(run: str | Path, *, device: str = ...) -> Any: ...


@overload
def load(run: str | Path, kind: type[PredictorType], *, device: str = ...) -> PredictorType: ...


def load(run: str | Path, kind: Any = None, *, device: str = "cpu") -> Any:
    """Load a trained model: the `Predictor` of its task.

    | task | predictor | its own verb, beside `predict` |
    |---|---|---|
    | translate | `Translator` | `translate(texts, beam=5)` |
    | classify | `Classifier` | `classify(texts)` |
    | pair | `PairPredictor` | |
    | recommend | `Recommender` | `recommend(user)` |
    | graph | `NodeClassifier` | `classify(names)` |
    | memory | `MemoryPredictor` | |
    | image | `ImagePredictor` | `classify(images)` |
    | language | `TextGenerator` | `generate(prompt)` |
    | hard | `HardPredictor` | |

    A folder with a checkpoint of Hugging Face transformers is a `PretrainedPredictor`, see
    `load_pretrained`.

    Args:
        run: the directory that `regard train` or `regard export` has written, or a checkpoint
        kind: the class to expect, for type checkers: `load(run, Translator)` is a `Translator`
        device: where the model is put: "cpu", "cuda", "cuda:1", "mps", or "auto" for what there is

    Raises:
        FileNotFoundError: if it is not a run directory, or has no model yet
        ValueError: if it is damaged, not of the expected kind, or the device does not exist
    """
    from regard.tasks import TASKS

    if is_checkpoint(run):
        if kind not in (None, Predictor, PretrainedPredictor):
            raise ValueError(f"{run} is a Hugging Face checkpoint, expected {kind.task}")
        return load_pretrained(run, device=device)
    task = read_run_config(run).task
    if task not in TASKS:
        raise ValueError(f"{run}: unknown task {task!r}{did_you_mean(task, TASKS)}")
    predictor = TASKS[task].predictor
    if kind not in (None, Predictor) and not issubclass(predictor, kind):
        raise ValueError(f"{run} is a run of the task {task}, expected {kind.task}")
    place = find_device(device)
    try:
        return predictor.from_run(run, str(place))
    except BROKEN as error:
        raise ValueError(f"{run} is damaged: {type(error).__name__}: {error}") from error


def load_model(build: Callable[[], nn.Module], run: str | Path, device: str = "cpu") -> nn.Module:
    """Build a model, put the weights of a run into it, and set it to eval mode.

    Of an export directory it is the exported model. The model of a run is built without memory
    first, on the meta device, and compared with the header of the weights: nothing larger than the
    file is allocated.

    Args:
        build: makes the model of the run's configuration

    Raises:
        FileNotFoundError: if the run has no weights yet
        ValueError: if they are damaged, or of another model
    """
    if (about := read_export(Path(run))) is not None:
        return load_exported(Path(run), about)
    path = Path(run) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{run} has no {WEIGHTS} yet: continue with regard train --resume")
    _check_numbers(run, path)
    with _advice_to_resume(run):
        shapes = _shapes(path)
    _check_fits(build, shapes, path)
    model = build()
    with _advice_to_resume(run):
        tensors = read_tensors(path)
    put_weights(model, tensors, source=str(path))
    return model.to(device).eval()


@contextmanager
def _advice_to_resume(run: str | Path) -> Iterator[None]:
    """Append to the error about damaged weights how to write them again."""
    try:
        yield
    except ValueError as error:
        advice = f"regard train --resume {run} writes it again from the checkpoints"
        raise ValueError(f"{error}; {advice}") from error


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the tensors of a file, from its header."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error


def _check_numbers(run: str | Path, path: Path) -> None:
    """Raise `ValueError` if a number of `[model]` is larger than its weights in bytes.

    Each unit and each layer has weights, so that such a model cannot be that of the file.
    """
    for name, value in load_toml(Path(run) / "config.toml").get("model", {}).items():
        if isinstance(value, int) and value > path.stat().st_size:
            raise ValueError(
                f"{path} is of another model: model.{name} = {value} is larger than its "
                f"{path.stat().st_size:,} bytes"
            )


class _Bounded(TorchFunctionMode):
    """Raise after making so many tensors: a file of few does not hold a million layers.

    Sizes need no numbers: random ones are not drawn, nor scaled. On the meta device that would
    import Dynamo and sympy, which takes a second.
    """

    def __init__(self, limit: int, message: str) -> None:
        super().__init__()
        self.left, self.message = limit, message

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= func in MAKERS
        if self.left < 0 and func in MAKERS:
            raise ValueError(self.message)
        first = args[0] if args else (kwargs or {}).get("tensor")  # nn.init has names
        if isinstance(first, Tensor) and first.is_meta and _keeps_shape(func, args):
            return first
        return (torch.empty if func in RANDOM else func)(*args, **(kwargs or {}))


def _keeps_shape(func: Any, args: Any) -> bool:
    """Whether a function fills its first argument in place, or scales it by a number."""
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return in_place or (func in SCALES and not isinstance(args[1], Tensor))


def _check_fits(
    build: Callable[[], nn.Module], shapes: dict[str, tuple[int, ...]], path: Path
) -> None:
    """Raise `ValueError` unless the model has exactly these tensors, and little beside them."""
    larger = f"{path} is of another model: its configuration describes a larger one"
    with torch.device("meta"), _Bounded(TENSORS * (len(shapes) + TENSORS), larger):
        model = build()
    own: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen or not tensor.numel():
            seen.add(id(tensor))
            own[name] = tuple(tensor.shape)
    for name in [*own, *shapes]:
        if name not in shapes or name not in own:
            where = "the configuration has" if name in shapes else "the file has"
            raise ValueError(f"{path} is of another model: {where} no {name}")
        if own[name] != shapes[name]:
            raise ValueError(
                f"{path} is of another model: {name} has shape {shapes[name]} there and "
                f"{own[name]} in the configuration"
            )
    buffers = sum(buffer.numel() for buffer in model.buffers())
    if buffers > SPARE + path.stat().st_size:
        raise ValueError(f"{larger}, with {buffers:,} elements of buffers")


def train(
    source: str | Path | dict[str, Any],
    out: str | Path | None = None,
    *,
    settings: Iterable[str] = (),
    resume: bool = False,
    accept_changed_data: bool = False,
    progress: Any = None,
) -> Any:
    """Train a model into a run directory and return its predictor, as `load` does.

    Args:
        source: the name of a recipe such as "dates", a TOML file, or the tables as a dict
        out: the run directory; runs/NAME by default
        settings: what to change, such as "training.lr=1e-3"
        resume: whether to continue the run that is there
        accept_changed_data: resume although the data has changed
        progress: receives the training events; if None, a notebook shows a bar and curves, and
            everything else a line on standard error from time to time

    Raises:
        FileExistsError: if there is a run already, and it is not to be resumed
        KeyboardInterrupt: if it was interrupted; what was trained is saved, and can be resumed
        ValueError: an unknown recipe or setting
    """
    import sys

    from regard.recipes import resolve_recipe
    from regard.training import train as train_task
    from regard.training.processes import continues
    from regard.training.progress import Cell, Lines, in_notebook

    name, tables = ("", source) if isinstance(source, dict) else resolve_recipe(str(source))
    if out is None and not name:
        raise ValueError("out is missing: a configuration without a name needs a directory")
    run = Path(out) if out is not None else Path("runs") / name
    resume = resume or continues(run)
    config, task = make_task(
        tables, settings, resume=run if resume else None, note=partial(print, file=sys.stderr)
    )
    outcome = train_task(
        task,
        config,
        run,
        resume=resume,
        accept_changed_data=accept_changed_data,
        progress=progress or (Cell() if in_notebook() else Lines(sys.stderr)),
    )
    if outcome.reason == "interrupted":
        raise KeyboardInterrupt(f"stopped after step {outcome.step}; resume=True continues {run}")
    return load(run)


def make_task(
    source: Any,
    settings: Iterable[str] = (),
    *,
    resume: Path | None = None,
    note: Callable[[str], None] = print,
) -> tuple[Config, Any]:
    """Return what a training starts with: the complete configuration, and its task.

    Args:
        source: a TOML file or its tables
        settings: what to change, such as "training.lr=1e-3"
        resume: the run to continue: its own configuration and tokenizers are used
        note: receives a sentence about settings that were replaced

    Raises:
        SettingsError: if the configuration is not valid
        ValueError: if the data is not
    """
    from regard.tasks import TASKS

    if resume is not None:
        source = read_run_config(resume).model_dump(exclude_none=True)
    config = read_config(source, settings, note=note)
    if config.task not in TASKS:
        raise SettingsError(f"unknown task = {config.task!r}{did_you_mean(config.task, TASKS)}")
    config, tokenizers = resolve_init(config, resume)
    return config, TASKS[config.task].from_config(config, tokenizers)


def resolve_init(config: Config, run: Path | None = None) -> tuple[Config, Path | None]:
    """Return the complete configuration, and the run whose tokenizers and classes are used.

    With `training.init` these are those of that run, and so is the table `[model]` if it is empty.

    Args:
        run: the run to resume, which has its own, if it was not killed before it wrote them
    """
    init = config.training.init
    if init is None or stored_file(run, MANIFEST):
        return config, run
    start = Path(init)
    try:
        own = read_run_config(start)
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(f"training.init: {error}") from error
    if not stored_file(start, MANIFEST):
        raise FileNotFoundError(f"training.init: {start} has no {MANIFEST}: train it first")
    if own.task != config.task:
        raise ValueError(f"training.init: {start} is of the task {own.task}, not {config.task}")
    return config.model_copy(update={"model": config.model or own.model}), start


def evaluate_run(run: str | Path, *, device: str = "cpu") -> dict[str, float]:
    """Return the metrics of a run's model on the held-out data of its configuration.

    These are what the task's `evaluate` measured during training, of the model that was kept.
    """
    from regard.tasks import TASKS

    config = read_run_config(run)
    if config.task not in TASKS:
        raise ValueError(f"{run}: unknown task {config.task!r}{did_you_mean(config.task, TASKS)}")
    # in memory: reading a run never writes elsewhere
    data = {key: value for key, value in config.data.items() if key != "store"}
    task: Any = TASKS[config.task].from_config(config.model_copy(update={"data": data}), Path(run))
    return task.evaluate(load_model(task.build, run, str(find_device(device))))


def save_classes(classes: Sequence[str], run: Path) -> None:
    """Store the names of classes in a run directory."""
    text = json.dumps(list(classes), ensure_ascii=False)
    (run / CLASSES).write_text(text, encoding="utf-8", newline="\n")


def load_classes(run: Path) -> list[str]:
    """Return the names of classes that `save_classes` stored."""
    classes = load_json(run / CLASSES)
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError(f"{run / CLASSES} is damaged: expected a list of names")
    return classes


def load_stored_classes(run: Path | None) -> list[str] | None:
    """Return the names of classes of a run that is resumed; None if there are none yet."""
    return load_classes(run) if run is not None and stored_file(run, CLASSES) else None


def load_json(path: Path) -> Any:
    """Return what is in a JSON file of a run directory.

    Raises:
        FileNotFoundError: if there is none
        ValueError: if it is not JSON, or larger than 64 MB
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name} in it")
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"{path} is damaged: it is larger than {LARGEST_JSON >> 20} MB")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON") from error
