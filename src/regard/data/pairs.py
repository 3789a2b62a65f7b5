"""Pairs of source and target, in memory or memory-mapped from an Arrow file."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

import numpy as np

from regard.data.files import Report
from regard.system.files import atomic_file

ROWS = 8192  # rows that are held in memory while an Arrow file is written

Source = str | np.ndarray  # a text, or float frames of shape (length, features)
Pair = tuple[Source, str]


class Pairs(Sequence[Pair]):
    """A sequence of (source, target) pairs, with a report of the lines that could not be used.

    >>> pairs = Pairs.collect([("one", "eins"), ("two", "zwei"), ("three", "drei")])
    >>> len(pairs), pairs[1], list(pairs[1:].targets)
    (3, ('two', 'zwei'), ['zwei', 'drei'])

    Args:
        sources: texts, or float frames of shape (length, features)
        targets: texts, as many
        report: of the reader
    """

    def __init__(
        self, sources: Sequence[Any], targets: Sequence[str], report: Report | None = None
    ) -> None:
        if len(sources) != len(targets):
            raise ValueError(
                f"expected as many targets as sources, got {len(sources)} sources and "
                f"{len(targets)} targets"
            )
        self.sources = sources
        self.targets = targets
        self.report = report or Report("pairs")
        self.origin: str | None = None  # the file that they are mapped from, if any

    @classmethod
    def collect(
        cls, rows: Iterable[Pair], report: Report | None = None, *, store: str | Path | None = None
    ) -> "Pairs":
        """Collect pairs in memory, or in an Arrow file that is memory-mapped.

        Args:
            rows: the pairs, read once
            report: of their reader
            store: the Arrow file to write; only texts can be stored
        """
        if store is not None:
            write_texts(rows, Path(store))
            return cls.open(store, report)
        gathered = list(rows)
        return cls([s for s, _ in gathered], [t for _, t in gathered], report)

    @classmethod
    def open(cls, store: str | Path, report: Report | None = None) -> "Pairs":
        """Memory-map an Arrow file of `collect`; `datasets.Dataset.from_file` opens it too."""
        table = map_table(Path(store))
        pairs = cls(Column(table["source"]), Column(table["target"]), report)
        about = Path(store).stat()
        pairs.origin = f"{Path(store).resolve()} {about.st_size} {about.st_mtime_ns}"
        return pairs

    def __len__(self) -> int:
        return len(self.targets)

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.sources, self.targets, strict=True)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> "Pairs": ...
    def __getitem__(self, index: int | slice) -> "Pair | Pairs":
        if index == slice(None):
            return self  # a list of all would not fit into memory
        if isinstance(index, slice):
            return Pairs(self.sources[index], self.targets[index], self.report)
        return self.sources[index], self.targets[index]

    def __repr__(self) -> str:
        return f"Pairs({len(self)})"


class Column(Sequence[Any]):
    """A column of a mapped Arrow table as a sequence of Python values."""

    def __init__(self, chunked: Any) -> None:
        self.chunks = [chunk for chunk in chunked.chunks if len(chunk)]
        self.starts = np.cumsum([0, *map(len, self.chunks)]).tolist()

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                return [self[i] for i in range(first, last, step)]
            parts = zip(self.starts, self.chunks, strict=False)
            cut = [c[max(0, first - s) : max(0, last - s)].to_pylist() for s, c in parts]
            return list(chain.from_iterable(cut))
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} is out of range: there are {len(self)}")
        which = bisect_right(self.starts, index) - 1
        return self.chunks[which][index - self.starts[which]].as_py()

    def __iter__(self) -> Iterator[Any]:
        for chunk in self.chunks:
            yield from chunk.to_pylist()


def write_texts(rows: Iterable[Pair], path: Path) -> None:
    """Write pairs of texts to an Arrow stream atomically, a few thousand at a time."""
    import pyarrow as pa  # type: ignore[import-untyped]

    schema = pa.schema([("source", pa.string()), ("target", pa.string())])
    rows = iter(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_file(path) as part,
        pa.OSFile(str(part), "wb") as file,
        pa.ipc.new_stream(file, schema) as writer,
    ):
        while block := list(islice(rows, ROWS)):
            columns = [pa.array(column, pa.string()) for column in zip(*block, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def map_table(path: Path) -> Any:
    """Memory-map an Arrow stream as a table."""
    import pyarrow as pa

    from regard.data.files import readable

    try:
        return pa.ipc.open_stream(pa.memory_map(str(readable(path)), "r")).read_all()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not an Arrow file of pairs, or it is truncated") from error
