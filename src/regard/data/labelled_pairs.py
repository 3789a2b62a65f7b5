"""Two inputs and a label: from TSV, translations true or shuffled."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.files import Bad, Report, check_bad, lines
from regard.data.pairs import Pairs
from regard.data.scenes import Scene


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs with their labels."""

    lefts: list[str]
    rights: list[str] | list[Scene]
    labels: list[int]
    classes: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    def with_classes(self, classes: list[str]) -> "LabelledPairs":
        """The same, with labels as positions in another list of classes."""
        unknown = sorted({self.classes[label] for label in self.labels} - set(classes))
        if unknown:
            raise ValueError(f"unknown class {unknown[0]!r}; the run knows {', '.join(classes)}")
        labels = [classes.index(self.classes[label]) for label in self.labels]
        return dataclasses.replace(self, labels=labels, classes=classes)


def read_labelled_pairs(
    path: str | Path,
    *,
    left: int = 0,
    right: int = 1,
    label: int = 2,
    columns: int | None = None,
    bad: Bad = "refuse",
) -> LabelledPairs:
    """Read two texts and a label from tab-separated text, plain or gzipped, without a header.

    Args:
        path: the file
        left, right, label: columns, from 0
        columns: number of columns; by default that of the first line
        bad: "refuse" raises if a line is bad, "skip" leaves it out
    """
    check_bad(bad)
    report = Report(path)
    rows: list[tuple[str, str, str]] = []
    for number, raw in lines(path):
        report.lines += 1
        try:
            cells = raw.decode("utf-8").split("\t")
        except UnicodeDecodeError as error:
            report.add(number, f"not UTF-8 at byte {error.start + 1}")
            continue
        if columns is None:
            columns = max(len(cells), max(left, right, label) + 1)
        if len(cells) != columns:
            named = f"{len(cells)} column{'s' if len(cells) != 1 else ''}"
            report.add(number, f"{named} instead of {columns}")
            continue
        row = cells[left].strip(), cells[right].strip(), cells[label].strip()
        if all(row):
            rows.append(row)
        else:
            empty = next(
                name for name, text in zip(("left", "right", "label"), row, strict=True) if not text
            )
            report.add(number, f"the {empty} column is empty")
    report.check(bad)
    classes = sorted({row[2] for row in rows})
    if len(classes) < 2:
        raise ValueError(f"{path} has only the label {classes[0]!r}: expected two or more")
    return LabelledPairs(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [classes.index(row[2]) for row in rows],
        classes,
    )


def shuffle_targets(pairs: Pairs, *, seed: int | Sequence[int]) -> LabelledPairs:
    """Every pair twice: with its own target and with that of another pair.

    A wrong target is never one of the source's own targets.

    >>> pairs = Pairs.collect([("가", "go"), ("안녕", "hi"), ("네", "yes")])
    >>> found = shuffle_targets(pairs, seed=1)
    >>> sorted(found.lefts) == sorted(["가", "안녕", "네"] * 2), sum(found.labels)
    (True, 3)
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
    return LabelledPairs(
        lefts * 2,
        [*rights, *(rights[i] for i in other)],
        [1] * len(lefts) + [0] * len(lefts),
        ["shuffled", "translation"],
    )
