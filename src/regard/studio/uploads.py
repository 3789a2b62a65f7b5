"""Files that a person drops on the page: checked, previewed, and kept for a training."""

import hashlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.data import read_pairs
from regard.data.files import Report, text_lines
from regard.data.labelled import Labelled
from regard.data.tables import TABLES, read_columns
from regard.recipes import load_recipe
from regard.studio.messages import Preview, Upload
from regard.system.files import atomic_file
from regard.web import RequestError

SHOWN_ROWS = 8
SHOWN_CHARACTERS = 200  # of a cell
MOST_BYTES = 2**30  # of all uploads together
UPLOAD = re.compile(r"(translate|classify|language)-[0-9a-f]{16}\.(tsv|csv|jsonl|txt)")
WORDS = 4.0  # words of a text on average, above which a text is split into subwords
LEAST_SOURCES = 3  # to train, to validate and to test
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
        try:
            rows, report = READERS[given.task](file)
        except ValueError as error:
            reason = str(error).replace(f"{scratch}/", "")
            reason, *advice = re.split("[;:] choose ", reason, maxsplit=1)
            # the library names settings to choose, which an upload does not have
            reason = f"{reason}: {EXPECTED[given.task]}" if advice else reason
            raise ValueError(reason) from error
    # the name says what is in it, so that a training finds the same
    digest = hashlib.sha256(content).hexdigest()[:16]
    name = f"{given.task}-{digest}{Path(given.name).suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    if sum(file.stat().st_size for file in folder.iterdir()) + len(content) > MOST_BYTES:
        raise RequestError(507, f"there are over {MOST_BYTES >> 20:,} MB of uploads: remove some")
    with atomic_file(folder / name) as part:
        part.write_bytes(content)
    return Preview(
        upload=name,
        rows=[[_cut(cell) for cell in row] for row in rows[:SHOWN_ROWS]],
        count=len(rows),
        skipped=report.count,
        problems=[_cut(f"{report.unit} {line}: {reason}") for line, reason in report.examples],
    )


def configuration(folder: Path, upload: str) -> dict[str, Any]:
    """Return the configuration of a training on an uploaded file.

    Raises:
        FileNotFoundError: if there is none of this name
    """
    task, path = upload.partition("-")[0], folder / upload
    if not UPLOAD.fullmatch(upload) or path.is_symlink() or not path.is_file():
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


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


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
    sources = len(set(pairs.sources))
    if sources < LEAST_SOURCES:
        raise ValueError(
            f"{file.name} has {sources} different source{'s' * (sources != 1)}: a training needs "
            f"{LEAST_SOURCES} or more, as some are held out for validation and test"
        )
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


EXPECTED = {
    "translate": "a line of a TSV has a source, a tab and a target; a CSV or JSONL file has the "
    "columns source and target",
    "classify": "a line of a TSV has a text, a tab and a label; other files have the columns text "
    "and label",
    "language": "a TXT file is taken as it is; other files have the column text",
}
READERS: dict[str, Callable[[Path], Rows]] = {
    "translate": _pairs,
    "classify": _documents,
    "language": _text,
}
