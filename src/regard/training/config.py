"""The configuration of a training run, read from and written to TOML."""

import os
import platform
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy
import tomli_w
import torch
from pydantic import Field, field_validator, model_validator

from regard.core.names import did_you_mean, find_name
from regard.models.build import KINDS, switch_kind
from regard.system.files import atomic_file
from regard.training.settings import Settings, SettingsError, read_settings

Count = Annotated[int, Field(ge=1)]

FILE_KEYS = {
    *("train", "valid", "test", "path", "folder", "store", "nodes", "edges", "users", "items"),
    *("images", "labels", "test_images", "test_labels", "alignments"),
}
"""The keys of `[data]` that name files and directories, of all tasks."""

TRANSFORMER_LR = 1e-3
"""Instead of the learning rate of a recurrent model, at which a Transformer would not learn."""


class Training(Settings):
    """The `[training]` table. At least one of `steps`, `epochs` and `minutes` is required."""

    steps: Count | None = Field(None, description="stop after this many optimizer steps")
    epochs: Count | None = Field(None, description="stop after this many passes over the data")
    minutes: float | None = Field(
        None, gt=0, description="stop after this long, earlier sessions of a resumed run included"
    )
    init: str | None = Field(
        None, description="a run whose weights and tokenizers to start from, for fine-tuning"
    )
    lr: float = Field(1e-3, gt=0, description="maximum learning rate")
    schedule: Literal["constant", "inverse_sqrt", "cosine", "plateau"] = Field(
        "constant", description="after the warm-up: constant, inverse_sqrt, cosine or plateau"
    )
    warmup: int = Field(0, ge=0, description="steps of linear warm-up")
    lower_by: float = Field(0.5, gt=0, lt=1, description="plateau: factor of the learning rate")
    lower_after: Count = Field(
        2, description="plateau: evaluations without improvement before it is lowered"
    )
    weight_decay: float = Field(0.01, ge=0, description="of matrices; vectors do not decay")
    betas: tuple[float, float] = Field((0.9, 0.98), strict=False, description="Adam's β₁ and β₂")
    eps: float = Field(1e-9, gt=0, description="Adam's ε")
    clip: float = Field(1.0, ge=0, description="maximum norm of the gradient; 0 disables clipping")
    accumulate: Count = Field(1, description="batches per step")
    evaluate_every: Count | None = Field(
        None, description="steps between evaluations; by default one at the end of each epoch"
    )
    patience: Count | None = Field(
        None, description="stop after this many evaluations without improvement"
    )
    save_every: Count = Field(
        1000, description="steps between checkpoints, besides one at each evaluation"
    )
    keep: Count = Field(2, description="number of latest checkpoints to keep")
    average: Count = Field(1, description="number of evaluated checkpoints to average")
    average_of: Literal["best", "last"] = Field("best", description="the best or the last")
    log_every: Count = Field(50, description="steps between lines of metrics.jsonl")
    threads: int | None = Field(
        None, ge=1, le=1024, description="of torch; by default torch's choice, kept when resumed"
    )
    device: str = Field(
        "auto",
        description="auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:1 or mps; kept when resumed",
    )
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="of matrix products, by autocast; float16 scales the loss"
    )
    compile: bool = Field(False, description="compile the model with torch.compile")

    @field_validator("device")
    @classmethod
    def _device(cls, name: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?|mps", name):
            raise ValueError("should be auto, cpu, cuda, cuda:1 or mps")
        return name

    @model_validator(mode="after")
    def _ends(self) -> "Training":
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise ValueError("steps, epochs or minutes must be given")
        if self.schedule == "cosine" and self.steps is None and self.epochs is None:
            raise ValueError("the cosine schedule needs steps or epochs")
        if self.schedule == "inverse_sqrt" and self.warmup == 0:
            raise ValueError("the inverse_sqrt schedule needs warmup")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be at least 0 and below 1, got {list(self.betas)}")
        return self


class Distributed(Settings):
    """The `[distributed]` table: training by several processes, started by torchrun."""

    shard: bool = Field(
        False, description="divide weights and optimizer among the processes (FSDP2), or copy them"
    )
    timeout: float = Field(
        600.0, gt=0, description="seconds to wait for other processes before giving up"
    )


class Config(Settings):
    """A complete configuration; the tables `data`, `model` and `loss` belong to the task."""

    task: str = Field(description="what is learned: translate, classify, ...")
    seed: int = Field(1, ge=0, lt=2**32, description="of weights, batches and generated data")
    data: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any] = Field(default_factory=dict)
    loss: dict[str, Any] = Field(default_factory=dict)
    training: Training
    distributed: Distributed = Field(default_factory=lambda: Distributed.model_validate({}))
    versions: dict[str, str] = Field(default_factory=dict)  # of torch and others, for the record


def read_config(
    source: str | Path | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    note: Callable[[str], None] = lambda text: None,
) -> Config:
    """Read and validate a configuration. Paths of data and of `training.init` become absolute.

    >>> config = read_config(
    ...     {"task": "translate", "training": {"steps": 7}}, ["training.lr=1e-3", "seed=3"]
    ... )
    >>> config.training.lr, config.seed
    (0.001, 3)

    Args:
        source: a TOML file, or its content as a dictionary
        overrides: "table.key=value" with the value as in TOML, quotes of strings optional; an
            empty value restores the default. A new `model.kind` replaces the settings that
            belong to the old kind
        note: receives a sentence about settings that were replaced

    Raises:
        ValueError: naming the key, and for an unknown one the nearest known
        FileNotFoundError: if the file does not exist
    """
    values = load_toml(Path(source)) if isinstance(source, str | Path) else _copy(source)
    overrides = list(overrides)
    _switch_kind(values, overrides, note)
    parse_overrides(overrides, values)
    for name in values:  # before missing keys: a table may be misspelt
        if name not in Config.model_fields:
            tables: dict[str, Any] = {**values, "training": Training.model_fields}
            for table, keys in tables.items():
                if isinstance(keys, Mapping) and name in keys:
                    raise SettingsError(f"unknown key {name}; did you mean {table}.{name}?")
            raise SettingsError(f"unknown key {name}{did_you_mean(name, Config.model_fields)}")
    training = values.pop("training", {})
    if not isinstance(training, Mapping):
        raise SettingsError(f"training must be a table, got {training!r}")
    if isinstance(training.get("init"), str):
        training = {**training, "init": os.path.abspath(training["init"])}
    checked = read_settings(Training, training, "training")
    if isinstance(values.get("distributed"), Mapping):
        own = read_settings(Distributed, values["distributed"], "distributed")
        values["distributed"] = own
    if isinstance(values.get("data"), Mapping):
        values["data"] = {key: _absolute(key, value) for key, value in values["data"].items()}
    return read_settings(Config, {**values, "training": checked})


def write_config(config: Config, path: Path) -> None:
    """Write a configuration as TOML, with the current versions."""
    with atomic_file(path) as part:
        part.write_text(dump_config(config), encoding="utf-8", newline="\n")


def dump_config(config: Config) -> str:
    """A configuration as TOML, with the current versions."""
    values = config.model_dump(exclude_none=True)
    return tomli_w.dumps({**values, "versions": versions()})


def versions() -> dict[str, str]:
    """The versions of regard, Python, torch and numpy."""
    return {
        "regard": sys.modules["regard"].__version__,  # loaded, since this module is a part of it
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def load_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; errors name the file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a TOML file")
    if not path.exists():
        raise FileNotFoundError(f"configuration file {path} does not exist")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    if not values:
        raise SettingsError(f"{path} is empty: a configuration has a task and a table [training]")
    return values


def changed_keys(
    before: Mapping[str, Any], after: Mapping[str, Any], table: str = ""
) -> list[tuple[str, Any, Any]]:
    """The keys of nested tables that differ, with both values; None for a missing one.

    >>> changed_keys({"seed": 1, "model": {"hidden": 7}}, {"seed": 1, "model": {"hidden": 11}})
    [('model.hidden', 7, 11)]
    """
    found = []
    for key in {**before, **after}:
        was, now = before.get(key), after.get(key)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            found += changed_keys(was, now, f"{table}{key}.")
        elif was != now:
            found.append((f"{table}{key}", was, now))
    return found


def _absolute(key: str, value: Any) -> Any:
    """The value of a key of `[data]`, paths made absolute: a run may be resumed from elsewhere."""
    if key not in FILE_KEYS:
        return value
    if isinstance(value, list):
        return [_absolute(key, entry) for entry in value]
    return os.path.abspath(value) if isinstance(value, str) else value


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in table.items()}


def _switch_kind(values: dict[str, Any], overrides: list[str], note: Callable[[str], None]) -> None:
    """Replace the settings of a translation model's kind, if an override changes the kind."""
    given = {name.strip(): text.strip() for name, _, text in (o.partition("=") for o in overrides)}
    model, training = values.get("model", {}), values.get("training", {})
    if "model.kind" not in given:
        return
    try:
        kind = find_name(str(_value(given["model.kind"] or "luong")), KINDS)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    was = model.get("kind", "luong") if isinstance(model, Mapping) else None
    if values.get("task") != "translate" or kind in (None, was, "language") or was is None:
        return
    values["model"] = switch_kind(model, str(kind))
    rate = training.get("lr") if isinstance(training, Mapping) else None
    if kind == "transformer" and "training.lr" not in given and isinstance(rate, float):
        values["training"] = {**training, "lr": min(rate, TRANSFORMER_LR)}
    old = {"model": model, "training": training}
    new = {table: values.get(table, {}) for table in old}
    changes = [change for change in changed_keys(old, new) if change[0] not in given]
    if changes:
        listed = ", ".join(
            f"{key} = {now!r}" if now is not None else f"without {key} = {before!r}"
            for key, before, now in changes
        )
        note(f"model.kind = {kind!r} replaces settings of {was}: {listed}")


def parse_overrides(
    overrides: Iterable[str], values: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return tables with the values of overrides, such as "training.lr=1e-3", put into them."""
    values = {} if values is None else values
    for override in overrides:
        _put(values, override)
    return values


def _put(values: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    *tables, key = (part.strip() for part in name.split("."))
    if not equals or not key or not all(tables):
        raise SettingsError(f"expected table.key=value, such as training.lr=1e-3, got {override!r}")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise SettingsError(f"{override!r}: {table} is a value, not a table")
    if text.strip():
        values[key] = _value(text.strip())
    else:
        values.pop(key, None)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
