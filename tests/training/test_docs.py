"""docs/training.md matches the code."""

import re
import tomllib
from pathlib import Path

from regard.tasks import TASKS
from regard.training import Training, read_config

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def table():
    """The keys of `[training]` as the page has to list them."""
    rows = []
    for name, field in Training.model_fields.items():
        default = field.default
        if isinstance(default, tuple):
            default = list(default)
        shown = "" if default is None else f"`{default}`"
        rows.append(f"| `{name}` | {shown} | {field.description} |\n")
    return "| key | default | |\n|---|---|---|\n" + "".join(rows)


def test_the_page_lists_every_key_with_its_default():
    assert table() in PAGE, f"docs/training.md needs this table:\n{table()}"


def test_the_configuration_of_the_page_works(tmp_path, monkeypatch):
    (text,) = re.findall(r"```toml\n(task.*?)```", PAGE, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for name in ("pairs.tsv", "held_out.tsv"):
        words = ("one two three", "four five six", "seven eight nine")
        lines = [f"{word} {number}\t{number} {word}\n" for number in range(7) for word in words]
        Path(name).write_text("".join(lines))
    config = read_config(tomllib.loads(text))
    task = TASKS[config.task].from_config(config)
    assert task.steps(0) == 1
    assert task.loss(task.build(), task.batch(0, 0)).total.isfinite()
