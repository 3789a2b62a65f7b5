"""Documents with a class: tables, JSON lines, a zip of directories, or generated."""

import dataclasses
import json
import random
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.files import (
    Bad,
    Report,
    check_bad,
    check_expansion,
    format_of,
    readable,
    text_lines,
)
from regard.data.tables import (
    SURROGATE,
    Columns,
    MissingColumnError,
    cell,
    csv_rows,
    is_saved_dataset,
    parquet_rows,
    saved_rows,
)

FOLD = re.compile(r"cv(\d)\d\d")  # the tag in the names of Pang & Lee's polarity dataset
SETTINGS = ("text", "label")  # of the table [data], which choose the columns


@dataclass(frozen=True)
class Documents:
    """Texts with their labels.

    >>> Documents.of([("fine", "pos"), ("dull", "neg")])
    Documents(texts=['fine', 'dull'], labels=[1, 0], classes=['neg', 'pos'], folds=None)
    """

    texts: list[str]
    labels: list[int]  # positions in `classes`
    classes: list[str]  # in alphabetical order
    folds: list[int] | None = None  # of cross-validation, if the data defines them

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]], folds: list[int] | None = None) -> "Documents":
        """Make documents from (text, name of the class)."""
        rows = list(rows)
        classes = sorted({label for _, label in rows})
        if len(classes) < 2:
            raise ValueError(
                f"a classifier needs two or more classes, but all {len(rows)} documents are of "
                f"class {classes[0]!r}"
                if classes
                else "there are no documents"
            )
        number = {name: place for place, name in enumerate(classes)}
        return cls([text for text, _ in rows], [number[y] for _, y in rows], classes, folds)

    def __len__(self) -> int:
        return len(self.texts)

    def with_classes(self, classes: list[str]) -> "Documents":
        """The same, with labels as positions in another list of classes."""
        unknown = sorted({self.classes[label] for label in self.labels} - set(classes))
        if unknown:
            raise ValueError(f"unknown class {unknown[0]!r}; the run knows {', '.join(classes)}")
        labels = [classes.index(self.classes[label]) for label in self.labels]
        return dataclasses.replace(self, labels=labels, classes=classes)

    def choose(self, places: Iterable[int]) -> "Documents":
        """The documents at some positions; the classes stay."""
        places = list(places)
        folds = None if self.folds is None else [self.folds[i] for i in places]
        texts, labels = [self.texts[i] for i in places], [self.labels[i] for i in places]
        return Documents(texts, labels, self.classes, folds)


def read_documents(
    path: str | Path,
    *,
    text: str = "text",
    label: str = "label",
    format: str | None = None,
    delimiter: str | None = None,
    bad: Bad = "refuse",
) -> Documents:
    """Read documents and their classes.

    `.csv` and `.tsv` have a first line with the names of the columns; a TSV has no quoting.
    `.jsonl` has an object per line. These may be compressed (`.gz`, `.zst`). `.parquet` files and
    directories of `save_to_disk` (of the `datasets` library) have columns. A `.zip` has a directory
    for each class and a text file for each document; a name such as `cv734_10001.txt` puts it into
    fold 7.

    Args:
        path: the file or directory
        text: the column, or key, of the text
        label: the column, or key, of the class
        format: "csv", "tsv", "jsonl", "parquet", "dataset" or "zip"; by default, by the name
        delimiter: of a CSV or TSV; by default, the most frequent of , ; | and tab in the first
            line of a CSV
        bad: "refuse" raises if a row is bad, "skip" leaves it out
    """
    check_bad(bad)
    kind = format or ("dataset" if is_saved_dataset(path) else format_of(path))
    if kind != "dataset":
        path = readable(path)
    path = Path(path)
    if delimiter is not None and kind not in ("csv", "tsv"):
        raise ValueError(f"{path}: the format {kind} takes no data.delimiter; leave it out")
    if kind == "zip":
        return _read_zip(path)
    report, names = Report(path), (text, label)
    report.advice = "choose data.text= and data.label=, or data.format"
    if kind in ("csv", "tsv"):
        table = csv_rows(path, delimiter) if kind == "csv" else _tsv_rows(path, delimiter or "\t")
        rows = list(_columns(table, path, names, report))
    elif kind in ("parquet", "dataset"):
        report.unit = "row"
        read = parquet_rows if kind == "parquet" else saved_rows
        rows = list(_good(read(path, names, SETTINGS), names, report))
    elif kind == "jsonl":
        rows = list(_good(_objects(path, names, report), names, report))
    else:
        raise ValueError(
            f"unknown format of {path}: expected .csv, .tsv or .jsonl (.gz or .zst may follow), "
            ".parquet, .zip, or a directory of save_to_disk; choose with data.format="
        )
    report.check(bad)
    return Documents.of(rows)


def _tsv_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in text_lines(path):
        if line:
            yield number, line.split(delimiter)


def _columns(
    rows: Iterable[tuple[int, list[str]]], path: Path, names: tuple[str, str], report: Report
) -> Iterator[tuple[str, str]]:
    """Both columns of a table with names in its first row."""
    columns = Columns(path, names, settings=SETTINGS)
    for number, row in rows:
        try:
            found = columns.pick(row)
        except MissingColumnError:
            raise
        except ValueError as error:
            report.lines += 1
            report.add(number, str(error))
            continue
        if found is None:
            continue
        report.lines += 1
        text, label = found[0], found[1].strip()
        if SURROGATE.search(text + label):
            report.add(number, "the row is not UTF-8")
        elif text.strip() and label:
            yield text, label
        else:
            report.add(number, "the text is empty" if label else "the class is empty")


def _objects(
    path: Path, names: tuple[str, str], report: Report
) -> Iterator[tuple[int, tuple[Any, Any]]]:
    for number, line in text_lines(path):
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield number, (cell(record, names[0]), cell(record, names[1]))
        else:
            report.lines += 1
            report.add(number, "not JSON" if record is None else "not a JSON object")


def _good(
    rows: Iterable[tuple[int, tuple[Any, Any]]], names: tuple[str, str], report: Report
) -> Iterator[tuple[str, str]]:
    """The rows whose two values are a text and a class."""
    for number, (text, label) in rows:
        report.lines += 1
        if not isinstance(text, str) or not text.strip():
            report.add(number, f"no text under {names[0]!r}")
        elif not isinstance(label, str | int):
            report.add(number, f"no class under {names[1]!r}")
        else:
            yield text, str(label)


def _read_zip(path: Path) -> Documents:
    rows, folds = [], []
    try:
        with zipfile.ZipFile(path) as archive:
            check_expansion(path, sum(entry.file_size for entry in archive.infolist()))
            for name in sorted(archive.namelist()):
                parts = name.split("/")
                if name.endswith(".txt") and len(parts) > 1 and "__MACOSX" not in parts:
                    raw = archive.read(name)
                    try:
                        content = raw.decode("utf-8")
                    except UnicodeDecodeError:
                        content = raw.decode("latin-1")
                    if content.strip():
                        rows.append((content, parts[-2]))
                        tag = FOLD.match(parts[-1])
                        folds.append(int(tag[1]) if tag else -1)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is not a zip file, or is damaged: {error}") from error
    if not rows:
        raise ValueError(f"{path} has no text files in directories named after their classes")
    return Documents.of(rows, None if -1 in folds else folds)


# Generated reviews ---------------------------------------------------------------------------
OTHERS = ("my neighbour", "the critic", "her brother", "some guest", "the poster")
SUBJECTS = ("the film", "the story", "the music", "the ending", "the cast")
GOOD = ("wonderful", "moving", "clever", "charming", "brilliant")
POOR = ("awful", "dull", "clumsy", "tedious", "hollow")
FILLERS = (
    "it runs for two hours .",
    "we sat in the third row .",
    "the cinema was nearly full .",
    "rain fell all evening .",
    "it was made in the north .",
)


def generate_documents(count: int, *, seed: int = 0) -> Documents:
    """Generate reviews whose class a bag of words cannot determine.

    Every review has a verdict of the author (`i found ...`), which is its class, the opposite
    verdict of another person, and neutral sentences, in any order. Positive and negative words are
    thus balanced in every document.

    >>> found = generate_documents(100)
    >>> found.classes, len(found.texts[0].splitlines()) >= 3
    (['neg', 'pos'], True)
    """
    if count < 2:
        raise ValueError(f"count must be at least 2, got {count}")
    rng = random.Random(f"documents {seed}")
    rows = []
    for place in range(count):
        label = ("neg", "pos")[place % 2]
        own, other = (GOOD, POOR) if label == "pos" else (POOR, GOOD)
        parts = [
            f"i found {rng.choice(SUBJECTS)} {rng.choice(own)} .",
            f"{rng.choice(OTHERS)} found {rng.choice(SUBJECTS)} {rng.choice(other)} .",
            *rng.choices(FILLERS, k=rng.randint(1, 5)),
        ]
        rng.shuffle(parts)
        rows.append(("\n".join(parts), label))
    return Documents.of(rows)
