"""Documents with a class: CSV, TSV, JSON lines, a zip of directories, or generated."""

import csv
import dataclasses
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.names import did_you_mean
from regard.data.files import Bad, Report, check_bad, check_expansion, readable, text_lines

FOLD = re.compile(r"cv(\d)\d\d")  # the tag in the names of Pang & Lee's polarity dataset
LONGEST = 2**31 - 1  # characters of a document in a CSV; by itself the csv module stops at 131,072


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
    path: str | Path, *, text: str = "text", label: str = "label", bad: Bad = "refuse"
) -> Documents:
    """Read documents and their classes.

    `.csv` and `.tsv` (plain or gzipped) have a first line with the names of the columns; a TSV has
    no quoting. `.jsonl` has an object per line. A `.zip` has a directory for each class and a text
    file for each document; a name such as `cv734_10001.txt` puts it into fold 7.

    Args:
        path: the file
        text: the column, or key, of the text
        label: the column, or key, of the class
        bad: "refuse" raises if a row is bad, "skip" leaves it out
    """
    check_bad(bad)
    path = readable(path)
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind == "zip":
        return _read_zip(path)
    readers: dict[str, Callable[[Path, str, str, Report], Iterator[tuple[str, str]]]]
    readers = {"csv": _csv, "tsv": _tsv, "jsonl": _jsonl}
    if kind not in readers:
        raise ValueError(
            f"unknown format of {path}: expected .csv, .tsv or .jsonl (.gz may follow), or .zip"
        )
    report = Report(path)
    rows = list(readers[kind](path, text, label, report))
    report.check(bad)
    return Documents.of(rows)


def _csv(path: Path, text: str, label: str, report: Report) -> Iterator[tuple[str, str]]:
    stream = io.StringIO("\n".join(line for _, line in text_lines(path)))
    csv.field_size_limit(LONGEST)
    try:
        yield from _table(csv.reader(stream, strict=True), path, text, label, report)
    except csv.Error as error:
        raise ValueError(f"{path} is not CSV: {error}") from error


def _tsv(path: Path, text: str, label: str, report: Report) -> Iterator[tuple[str, str]]:
    rows = (line.split("\t") for _, line in text_lines(path))
    yield from _table(rows, path, text, label, report)


def _table(
    rows: Iterable[list[str]], path: Path, text: str, label: str, report: Report
) -> Iterator[tuple[str, str]]:
    """Two columns of a table with a header."""
    names: list[str] | None = None
    for number, row in enumerate(rows, start=1):
        if names is None:
            names = row
            for name in (text, label):
                if name not in names:
                    raise ValueError(f"{path} has no column {name!r}{did_you_mean(name, names)}")
            continue
        if not row:
            continue
        report.lines += 1
        if len(row) != len(names):
            columns = f"{len(row)} column{'s' if len(row) != 1 else ''}"
            report.add(number, f"{columns} instead of {len(names)}")
            continue
        found = row[names.index(text)], row[names.index(label)].strip()
        if all(part.strip() for part in found):
            yield found
        else:
            report.add(number, "the text is empty" if found[1] else "the class is empty")


def _jsonl(path: Path, text: str, label: str, report: Report) -> Iterator[tuple[str, str]]:
    for number, line in text_lines(path):
        report.lines += 1
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            report.add(number, "not JSON")
            continue
        if not isinstance(record, dict):
            report.add(number, "not a JSON object")
        elif not isinstance(record.get(text), str) or not record[text].strip():
            report.add(number, f"no text under {text!r}")
        elif not isinstance(record.get(label), str | int):
            report.add(number, f"no class under {label!r}")
        else:
            yield record[text], str(record[label])


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
