"""A tokenized corpus, in memory or memory-mapped from an Arrow file."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.batch import Batch, collate
from regard.data.files import readable
from regard.data.fingerprint import fingerprint
from regard.data.pairs import ROWS, Pairs, map_table
from regard.data.tokenizer import Tokenizer
from regard.system.files import atomic_file, exclusive, remove_unfinished
from regard.system.process import in_processes

IDS, LENGTHS, KEY = "ids-{:05}.arrow", "lengths.bin", "key.txt"
PART = 2**17  # pairs of one file of ids


class Block(NamedTuple):
    """Some thousand pairs end to end; sequence i is values[starts[i] : starts[i + 1]]."""

    source: np.ndarray  # (total,) ids, or (total, features) float frames
    source_starts: np.ndarray  # (pairs + 1,)
    target: np.ndarray  # (total,) ids
    target_starts: np.ndarray  # (pairs + 1,)


class Encoded(Sequence[Any]):
    """A tokenized corpus: `corpus[i]` is (source ids or frames, target ids), as views.

    Args:
        blocks: the pairs
        lengths: (n, 2), of source and target, the latter with BOS and EOS, which are not stored;
            `batch` adds them
    """

    def __init__(self, blocks: Sequence[Block], lengths: np.ndarray) -> None:
        self.blocks = blocks
        self.lengths = lengths
        self.firsts = np.cumsum([0, *(len(block.target_starts) - 1 for block in blocks)]).tolist()

    @classmethod
    def open(cls, store: str | Path) -> "Encoded":
        """Memory-map a corpus that `encode_pairs` has stored."""
        store = Path(store)
        size = readable(store / LENGTHS).stat().st_size
        tables = [map_table(path) for path in _parts(store)]
        rows = sum(map(len, tables))
        if size != rows * 8 or not size:
            raise ValueError(f"{store} is damaged: encode the pairs again")
        lengths = np.memmap(store / LENGTHS, np.int32, "r", shape=(rows, 2))
        return cls([_mapped(batch) for table in tables for batch in table.to_batches()], lengths)

    def __len__(self) -> int:
        return self.firsts[-1]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"pair {index} is out of range: there are {len(self)}")
        index %= len(self)
        which = bisect_right(self.firsts, index) - 1
        block, row = self.blocks[which], index - self.firsts[which]
        source = block.source[block.source_starts[row] : block.source_starts[row + 1]]
        target = block.target[block.target_starts[row] : block.target_starts[row + 1]]
        return source, target

    def batch(self, index: Sequence[int]) -> Batch:
        """The pairs at these positions, padded."""
        return collate((self[i] for i in index), index)


def encode_pairs(
    pairs: Pairs,
    source: Tokenizer | None,
    target: Tokenizer,
    *,
    store: str | Path | None = None,
) -> Encoded:
    """Encode a corpus in memory, or a few thousand pairs at a time into memory-mapped files.

    Args:
        pairs: texts, or frames and texts
        source: the source's tokenizer; None if sources are frames
        target: the target's
        store: directory to write to, for a corpus larger than memory: all processors encode it, a
            killed process continues where it was, and other processes use what is there
    """
    if store is None:
        kept = list(_blocks(pairs, source, target))
        if not kept:
            raise ValueError("there are no pairs to encode")
        return Encoded(kept, np.concatenate([_lengths(block) for block in kept]))
    _store(pairs, source, target, Path(store))
    return Encoded.open(store)


def _blocks(
    pairs: Pairs, source: Tokenizer | None, target: Tokenizer, first: int = 0
) -> Iterator[Block]:
    """The pairs, some thousand at a time; `first` is the number of the first one."""
    encode: Callable[[Any], Any] = np.asarray if source is None else source.encode
    rows, done = iter(pairs), first
    while block := list(islice(rows, ROWS)):
        sources = [encode(text) for text, _ in block]
        targets = [target.encode(text) for _, text in block]
        for row, ids in enumerate(sources):
            if not len(ids):
                raise ValueError(f"pair {done + row} has an empty source")
        flat = np.concatenate(sources).astype(np.float32) if source is None else _flat(sources)
        yield Block(flat, _starts(sources), _flat(targets), _starts(targets))
        done += len(block)


def _store(pairs: Pairs, source: Tokenizer | None, target: Tokenizer, store: Path) -> None:
    """Write the parts of a corpus that are not there yet, on all processors; one process at a time.

    What is there is used if it is of the same pairs and tokenizers.
    """
    key = _key(pairs, source, target)
    if not len(pairs):
        raise ValueError("there are no pairs to encode")
    with exclusive(store):
        if not (store / KEY).is_file() or (store / KEY).read_text("utf-8") != key:
            _clear(store)
            with atomic_file(store / KEY) as file:
                file.write_text(key, encoding="utf-8", newline="\n")
        if (store / LENGTHS).is_file():
            return
        remove_unfinished(store)
        lengths = [store / f"lengths-{number:05}.bin" for number in range(-(-len(pairs) // PART))]
        missing = [number for number, path in enumerate(lengths) if not path.is_file()]

        def write(number: int) -> None:
            first = number * PART
            blocks = _blocks(pairs[first : first + PART], source, target, first)
            _write(blocks, store / IDS.format(number), lengths[number])

        try:
            in_processes(write, missing)
        except ValueError:  # of the pairs, which must be corrected
            _clear(store)
            raise
        with atomic_file(store / LENGTHS) as file, file.open("wb") as whole:
            for path in lengths:
                whole.write(path.read_bytes())
        for path in lengths:
            path.unlink()


def _key(pairs: Pairs, source: Tokenizer | None, target: Tokenizer) -> str:
    """What a stored corpus was encoded from: the pairs and the tokenizers."""
    states = [None if one is None else (one.kind, one.state()) for one in (source, target)]
    text = json.dumps([PART, pairs.origin or fingerprint(pairs), *states])
    return hashlib.sha256(text.encode()).hexdigest()


def _clear(store: Path) -> None:
    for path in (store / KEY, store / LENGTHS, *store.glob("lengths-*.bin"), *_parts(store)):
        path.unlink(missing_ok=True)


def _parts(store: Path) -> list[Path]:
    return sorted(store.glob(IDS.replace("{:05}", "*")))


def _write(blocks: Iterator[Block], ids: Path, lengths: Path) -> None:
    """Write a part of a corpus; its lengths come last and mark it as complete."""
    import pyarrow as pa  # type: ignore[import-untyped]

    writer = None
    with (
        atomic_file(lengths) as length_file,
        length_file.open("wb") as numbers,
        atomic_file(ids) as id_file,
        pa.OSFile(str(id_file), "wb") as file,
    ):
        for block in blocks:
            numbers.write(_lengths(block).tobytes())
            values = pa.array(block.source.ravel())
            if block.source.ndim == 2:
                values = pa.FixedSizeListArray.from_arrays(values, block.source.shape[1])
            columns = [
                pa.ListArray.from_arrays(pa.array(block.source_starts), values),
                pa.ListArray.from_arrays(pa.array(block.target_starts), pa.array(block.target)),
            ]
            record = pa.record_batch(columns, names=["source", "target"])
            writer = writer or pa.ipc.new_stream(file, record.schema)
            writer.write_batch(record)
        if writer is not None:
            writer.close()


def _mapped(batch: Any) -> Block:
    source, target = batch.column("source"), batch.column("target")
    values = source.values
    if values.type.num_fields:  # frames, a list of features each
        width = values.type.list_size
        frames = values.values.to_numpy().reshape(-1, width)
    else:
        frames = values.to_numpy()
    return Block(
        frames, source.offsets.to_numpy(), target.values.to_numpy(), target.offsets.to_numpy()
    )


def _flat(sequences: list[list[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(sequences), np.int32, sum(map(len, sequences)))


def _starts(sequences: Sequence[Any]) -> np.ndarray:
    return np.cumsum([0, *map(len, sequences)], dtype=np.int32)


def _lengths(block: Block) -> np.ndarray:
    """(pairs, 2), with BOS and EOS of targets."""
    lengths = np.stack([np.diff(block.source_starts), np.diff(block.target_starts) + 2], axis=1)
    return lengths.astype(np.int32)
