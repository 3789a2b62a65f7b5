"""Texts with a class, and pairs of texts with one: tables, a zip of directories, or generated."""

import random
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from regard.data.files import Bad, Report, check_expansion, readable
from regard.data.pairs import Pairs
from regard.data.tables import TABLES, find_format, read_columns

FOLD = re.compile(r"cv(\d)\d\d")  # the tag in the names of Pang & Lee's polarity dataset
Input = TypeVar("Input")


@dataclass(frozen=True)
class Labelled(Generic[Input]):
    """Inputs with their labels.

    >>> Labelled.of([("fine", "pos"), ("dull", "neg")])
    Labelled(inputs=['fine', 'dull'], labels=[1, 0], classes=['neg', 'pos'], folds=None)
    """

    inputs: list[Input]
    labels: list[int]  # positions in `classes`
    classes: list[str]
    folds: list[int] | None = None  # of cross-validation, if the data defines them

    @classmethod
    def of(
        cls,
        rows: Iterable[tuple[Input, str]],
        classes: list[str] | None = None,
        folds: list[int] | None = None,
    ) -> "Labelled[Input]":
        """Make inputs with labels from (input, name of the class).

        Args:
            classes: those of a run; by default the names that occur, in alphabetical order
        """
        rows = list(rows)
        names = sorted({name for _, name in rows})
        if classes is None and len(names) < 2:
            raise ValueError(
                f"a classifier needs two or more classes, but all {len(rows)} examples are of "
                f"class {names[0]!r}"
                if names
                else "there are no examples"
            )
        known = classes or names
        for name in names:
            if name not in known:
                raise ValueError(f"unknown class {name!r}; the run knows {', '.join(known)}")
        number = {name: place for place, name in enumerate(known)}
        return cls([one for one, _ in rows], [number[name] for _, name in rows], known, folds)

    def __len__(self) -> int:
        return len(self.labels)

    def choose(self, places: Iterable[int]) -> "Labelled[Input]":
        """Return the examples at some positions; the classes stay."""
        places = list(places)
        folds = None if self.folds is None else [self.folds[i] for i in places]
        inputs, labels = [self.inputs[i] for i in places], [self.labels[i] for i in places]
        return Labelled(inputs, labels, self.classes, folds)


def read_documents(
    path: str | Path,
    *,
    text: int | str = "text",
    label: int | str = "label",
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    bad: Bad = "refuse",
    classes: list[str] | None = None,
) -> Labelled[str]:
    """Read texts and their classes from two columns of a table, or from a zip.

    A zip has a directory for each class and a text file for each document; a name such as
    `cv734_10001.txt` puts it into fold 7.

    Args:
        path: the file or directory
        text: the column, or key, of the text, as in `read_table`
        label: the column, or key, of the class
        format: "zip" or a name of `TABLES`; by default, by the name of the path
        encoding, delimiter: of a CSV or TSV, as in `read_table`
        bad: "refuse" raises if a row is bad, "skip" leaves it out
        classes: those of a run, to number the labels by; those of the data if None
    """
    kind = find_format(path, format, (*TABLES, "zip"))
    if kind == "zip":
        if encoding is not None:
            raise ValueError(f"{path}: the format zip takes no data.encoding; leave it out")
        return _read_zip(readable(path), classes)
    rows: Any = read_columns(
        path,
        {"text": text, "label": label},
        Report(path),
        format=kind,
        encoding=encoding,
        delimiter=delimiter,
        labels=["label"],
        bad=bad,
    )
    return Labelled.of(rows, classes)


def read_labelled_pairs(
    path: str | Path,
    *,
    left: int | str | None = None,
    right: int | str | None = None,
    label: int | str | None = None,
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    bad: Bad = "refuse",
    classes: list[str] | None = None,
) -> Labelled[tuple[str, str]]:
    """Read two texts and a label from three columns of a table.

    Args:
        path: the file or directory
        left, right, label: columns, as in `read_table`; by default these names, and 0, 1 and 2 in
            a TSV
        format: a name of `TABLES`; by default, by the name of the path
        encoding, delimiter: of a CSV or TSV, as in `read_table`
        bad: "refuse" raises if a row is bad, "skip" leaves it out
        classes: those of a run, to number the labels by; those of the data if None
    """
    kind = find_format(path, format, TABLES)
    given = {"left": left, "right": right, "label": label}
    wanted = {
        name: column if column is not None else place if kind == "tsv" else name
        for place, (name, column) in enumerate(given.items())
    }
    options: Any = {"format": kind, "encoding": encoding, "delimiter": delimiter}
    rows = read_columns(path, wanted, Report(path), **options, labels=["label"], bad=bad)
    return Labelled.of((((one, two), name) for one, two, name in rows), classes)


def _read_zip(path: Path, classes: list[str] | None) -> "Labelled[str]":
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
    return Labelled.of(rows, classes, None if -1 in folds else folds)


def shuffle_targets(pairs: Pairs, *, seed: int | Sequence[int]) -> Labelled[tuple[str, str]]:
    """Every pair twice: with its own target and with that of another pair.

    A wrong target is never one of the source's own targets.

    >>> pairs = Pairs.collect([("가", "go"), ("안녕", "hi"), ("네", "yes")])
    >>> found = shuffle_targets(pairs, seed=1)
    >>> sorted(left for left, _ in found.inputs) == sorted(["가", "안녕", "네"] * 2)
    True
    >>> sum(found.labels)
    3
    """
    lefts, rights = [str(source) for source in pairs.sources], list(pairs.targets)
    true: dict[str, set[str]] = {}
    for left, right in zip(lefts, rights, strict=True):
        true.setdefault(left, set()).add(right)
    if len(set(rights)) < 2:
        raise ValueError("expected at least two different targets to shuffle")
    rng = np.random.default_rng(seed)
    other = rng.permutation(len(rights))
    for i, left in enumerate(lefts):
        while rights[other[i]] in true[left] and len(true[left]) < len(set(rights)):
            other[i] = rng.integers(len(rights))
    others = [rights[i] for i in other]
    return Labelled(
        list(zip(lefts * 2, rights + others, strict=True)),
        [1] * len(lefts) + [0] * len(lefts),
        ["shuffled", "translation"],
    )


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


def generate_documents(count: int, *, seed: int = 0) -> Labelled[str]:
    """Generate reviews whose class a bag of words cannot determine.

    Every review has a verdict of the author (`i found ...`), which is its class, the opposite
    verdict of another person, and neutral sentences, in any order. Positive and negative words are
    thus balanced in every document.

    >>> found = generate_documents(100)
    >>> found.classes, len(found.inputs[0].splitlines()) >= 3
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
    return Labelled.of(rows)
