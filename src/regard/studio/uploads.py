"""Files that a person drops on the page: checked, previewed, and kept for a training."""

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.core.files import atomic_file
from regard.data import read_pairs
from regard.data.columns import read_columns
from regard.data.files import Report, text_lines
from regard.data.labelled import Labelled
from regard.data.tables import TABLES
from regard.recipes import load_recipe
from regard.studio.messages import Preview, Upload

SHOWN_ROWS = 8
WORDS = 4.0  # words of a text on average, above which a text is split into subwords
LEAST_CHARACTERS = 1000  # of a text for a language model

Rows = tuple[list[list[str]], Report]


def preview(folder: Path, given: Upload) -> Preview:
    """Check a file, keep it below `folder`, and return what is in it.

    Raises:
        ValueError: if it does not have what the task needs
    """
    content = given.text.encode("utf-8", "replace")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / Path(given.name).name
        file.write_bytes(content)
        rows, report = READERS[given.task](file)
    # the name says what is in it, so that a training finds the same
    digest = hashlib.sha256(content).hexdigest()[:16]
    name = f"{given.task}-{digest}{Path(given.name).suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / name) as part:
        part.write_bytes(content)
    return Preview(
        upload=name,
        rows=rows[:SHOWN_ROWS],
        count=len(rows),
        skipped=report.count,
        problems=[f"{report.unit} {line}: {reason}" for line, reason in report.examples],
    )


def configuration(folder: Path, upload: str) -> dict[str, Any]:
    """Return the configuration of a training on an uploaded file.

    Raises:
        FileNotFoundError: if there is none of this name
    """
    task, path = upload.partition("-")[0], folder / upload
    if Path(upload).name != upload or task not in READERS or not path.is_file():
        raise FileNotFoundError("the uploaded file is not there any more: choose it again")
    tables = load_recipe({"translate": "dates"}.get(task, task))
    data: dict[str, Any] = {"bad": "skip"}
    if task == "translate":
        data |= {"train": str(path.resolve()), "sentences": 50}
        data |= dict.fromkeys(("source_tokenizer", "target_tokenizer"), _tokenizer(path))
    elif task == "classify":
        data |= {"path": str(path.resolve()), "batch": 16, **_columns(path)}
    else:
        data |= {**tables["data"], "path": str(path.resolve())}
    return {**tables, "data": data}


def _tokenizer(file: Path) -> str:
    some = read_pairs(file, bad="skip")[:200]
    words = sum(len(str(source).split()) for source in some.sources) / len(some)
    return "bpe" if words > WORDS else "characters"


def _columns(file: Path) -> dict[str, Any]:
    """Where texts and labels are: by name, or the first two columns of a file without names."""
    first = next((line for _, line in text_lines(file)), "")
    names = [name.strip().lower() for name in first.split("\t")]
    if _format(file) != "tsv" or {"text", "label"} <= set(names):
        return {"text": "text", "label": "label", "format": _format(file)}
    return {"text": 0, "label": 1, "format": "tsv"}


def _format(file: Path) -> str:
    suffix = file.suffix.removeprefix(".")
    return suffix if suffix in TABLES else "tsv"


def _pairs(file: Path) -> Rows:
    pairs = read_pairs(file, bad="skip")
    return [[str(source), target] for source, target in pairs], pairs.report


def _documents(file: Path) -> Rows:
    report, wanted = Report(file.name), _columns(file)
    format = wanted.pop("format")
    rows = read_columns(file, wanted, report, format=format, labels=["label"], bad="skip")
    found = [list(row) for row in rows]
    Labelled.of((text, label) for text, label in found)  # two classes at least
    return found, report


def _text(file: Path) -> Rows:
    report = Report(file.name)
    if file.suffix != ".txt":
        rows = read_columns(file, {"text": "text"}, report, format=_format(file), bad="skip")
        found = [list(row) for row in rows]
    else:
        found = [[line] for _, line in text_lines(file) if line.strip()]
    characters = sum(len(line) for (line,) in found)
    if characters < LEAST_CHARACTERS:
        raise ValueError(
            f"{file.name} has {characters:,} characters: a language model needs at least "
            f"{LEAST_CHARACTERS:,}"
        )
    return found, report


READERS: dict[str, Callable[[Path], Rows]] = {
    "translate": _pairs,
    "classify": _documents,
    "language": _text,
}
