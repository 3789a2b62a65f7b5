"""The settings that a request may change: numbers, true or false, and names of the library's lists.

A training reads and writes files, so nothing that could name one is taken from a request: a setting
whose type is text is refused, unless its values are names. `training.init` is the name of a run.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

from regard.core.names import did_you_mean
from regard.models.build import KINDS, options_of
from regard.tasks import TASKS
from regard.training.config import Training, parse_overrides

INIT = "training.init"
NAMED = {  # of type text, with names as values
    *("training.device", "data.name", "data.tokenizer"),
    *("data.source_tokenizer", "data.target_tokenizer"),
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:-]*")
SIZES = ("source_vocabulary", "target_vocabulary", "vocabulary")  # follow from the data


def check_settings(
    task: str, settings: Sequence[str], find_run: Callable[[str], Path]
) -> list[str]:
    """Return settings such as "training.lr=1e-3", with the path of the run of `training.init`.

    Args:
        find_run: returns the directory of a run that may be opened, by its name

    Raises:
        ValueError: for a setting that a request may not change, or a value that is no number, no
            name, and neither true nor false
    """
    return [_checked(task, setting, find_run) for setting in settings]


@cache
def changeable(task: str) -> dict[str, bool]:
    """Return every key of the tables of a task, and whether a request may change it."""
    tables: dict[str, Any] = {"training": Training, **dict(TASKS[task].tables)}
    found = {"seed": True}
    for table, kind in tables.items():
        for name, field in kind.model_fields.items():
            key = f"{table}.{name}"
            found[key] = key in NAMED or key == INIT or not _holds_text(field.annotation)
    if "model" not in tables:  # the options of `regard.models.build`, of which none is a path
        options = {option for kind in KINDS for option in options_of(kind)}
        found |= {f"model.{name}": True for name in ("kind", "preset", *sorted(options))}
        found = {key: free for key, free in found.items() if key.split(".")[-1] not in SIZES}
    return found


def _checked(task: str, setting: str, find_run: Callable[[str], Path]) -> str:
    name, equals, text = setting.partition("=")
    key, known = ".".join(part.strip() for part in name.split(".")), changeable(task)
    if not equals:
        raise ValueError(f"expected table.key=value, such as training.lr=1e-3, got {setting!r}")
    if key not in known:
        table, _, field = key.rpartition(".")
        beside = [one.rpartition(".")[2] for one in known if one.rpartition(".")[0] == table]
        tables = sorted({one.partition(".")[0] for one in known})
        raise ValueError(f"unknown key {key}{did_you_mean(field, beside or tables)}")
    if not known[key]:
        raise ValueError(
            f"{key} cannot be changed in the studio, which takes no paths and no other text: "
            "upload a file, or train with regard train"
        )
    if not text.strip():  # the default
        return f"{key}="
    value: Any = parse_overrides([f"value={text}"])["value"]
    if key == INIT:
        return f"{key}={json.dumps(str(find_run(str(value))))}"
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, int | float) and not (isinstance(one, str) and NAME.fullmatch(one)):
            raise ValueError(f"{key} should be a number, true, false or a name, got {text.strip()}")
    return f"{key}={text}"


def _holds_text(annotation: Any) -> bool:
    """Whether a value of a type may be any text."""
    return annotation in (str, Any) or any(map(_holds_text, get_args(annotation)))
