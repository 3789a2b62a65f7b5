"""Any of the known formats, by the ending of the file's name; and any `datasets` dataset."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.core.names import did_you_mean
from regard.data.frames import read_frames
from regard.data.pairs import Pair, Pairs
from regard.data.report import Bad, Report, check_bad
from regard.data.text import read_dictionary, read_fixed_width, read_jsonl, read_tsv

READERS: dict[str, Callable[..., Pairs]] = {
    "tsv": read_tsv,
    "jsonl": read_jsonl,
    "dict": read_dictionary,
    "txt": read_fixed_width,
    "npz": read_frames,
}


def read_pairs(path: str | Path, *, format: str | None = None, **options: Any) -> Pairs:
    """Read pairs from a file of any known format.

    Args:
        path: the file, plain or gzipped
        format: "tsv", "jsonl", "dict", "txt" (fixed width) or "npz"; by default, the ending of
            the name, before `.gz`
        options: what the reader of that format takes, such as `bad="skip"`
    """
    ending = Path(Path(path).name.removesuffix(".gz")).suffix[1:]
    wanted = format or ending
    if wanted not in READERS:
        if Path(path).is_dir():
            raise IsADirectoryError(f"{path} is a directory, not a file")
        if not Path(path).exists():
            raise FileNotFoundError(f"there is no file {path}")
        raise ValueError(f"{path}: unknown format {wanted!r}{did_you_mean(wanted, READERS)}")
    return READERS[wanted](path, **options)


def from_dataset(
    dataset: Any,
    *,
    source: str,
    target: str,
    bad: Bad = "refuse",
    store: str | Path | None = None,
) -> Pairs:
    """Pairs from two columns of a dataset of the `datasets` library, streamed ones included.

    Args:
        dataset: anything that yields rows as dictionaries
        source: the column of the source; a dot goes one level down, as in "translation.en"
        target: the column of the target
        bad: what to do with rows that lack a side; they are numbered from 1 in the report
        store: an Arrow file to keep the pairs in; needed for a dataset larger than memory
    """
    check_bad(bad)
    report = Report("the dataset")

    def rows() -> Iterator[Pair]:
        for row in dataset:
            report.lines += 1
            sides = _cell(row, source), _cell(row, target)
            wrong = [
                name
                for name, text in zip((source, target), sides, strict=True)
                if not isinstance(text, str) or not text.strip()
            ]
            if wrong:
                report.add(report.lines, f"no text in {' or '.join(map(repr, wrong))}")
            else:
                yield sides
        report.settle(bad)

    return Pairs.collect(rows(), report, store=store)


def _cell(row: dict[str, Any], column: str) -> Any:
    cell: Any = row
    for key in column.split("."):
        if not isinstance(cell, dict) or key not in cell:
            known = list(cell) if isinstance(cell, dict) else []
            raise ValueError(f"the dataset has no column {column!r}{did_you_mean(key, known)}")
        cell = cell[key]
    return cell
