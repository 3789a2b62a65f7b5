"""A tokenized corpus, in memory or memory-mapped from an Arrow file."""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.batch import Batch, collate
from regard.data.files import readable
from regard.data.pairs import ROWS, Pairs, map_table
from regard.data.tokenizer import Tokenizer

IDS, LENGTHS = "ids.arrow", "lengths.bin"


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
        table = map_table(store / IDS)
        size = readable(store / LENGTHS).stat().st_size
        if size != len(table) * 8 or not size:
            raise ValueError(f"{store} is damaged: encode the pairs again")
        lengths = np.memmap(store / LENGTHS, np.int32, "r", shape=(len(table), 2))
        return cls([_mapped(batch) for batch in table.to_batches()], lengths)

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
        store: directory to write to, for a corpus larger than memory
    """
    blocks = _blocks(pairs, source, target)
    if store is None:
        kept = list(blocks)
        if not kept:
            raise ValueError("there are no pairs to encode")
        return Encoded(kept, np.concatenate([_lengths(block) for block in kept]))
    _write(blocks, Path(store))
    return Encoded.open(store)


def _blocks(pairs: Pairs, source: Tokenizer | None, target: Tokenizer) -> Iterator[Block]:
    encode: Callable[[Any], Any] = np.asarray if source is None else source.encode
    rows, done = iter(pairs), 0
    while block := list(islice(rows, ROWS)):
        sources = [encode(text) for text, _ in block]
        targets = [target.encode(text) for _, text in block]
        for row, ids in enumerate(sources):
            if not len(ids):
                raise ValueError(f"pair {done + row} has an empty source")
        flat = np.concatenate(sources).astype(np.float32) if source is None else _flat(sources)
        yield Block(flat, _starts(sources), _flat(targets), _starts(targets))
        done += len(block)


def _write(blocks: Iterator[Block], store: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]

    store.mkdir(parents=True, exist_ok=True)
    parts = [store / f"{name}.{os.getpid()}.part" for name in (LENGTHS, IDS)]
    writer = None
    try:
        with parts[0].open("wb") as lengths, pa.OSFile(str(parts[1]), "wb") as ids:
            for block in blocks:
                lengths.write(_lengths(block).tobytes())
                values = pa.array(block.source.ravel())
                if block.source.ndim == 2:
                    values = pa.FixedSizeListArray.from_arrays(values, block.source.shape[1])
                columns = [
                    pa.ListArray.from_arrays(pa.array(block.source_starts), values),
                    pa.ListArray.from_arrays(pa.array(block.target_starts), pa.array(block.target)),
                ]
                record = pa.record_batch(columns, names=["source", "target"])
                writer = writer or pa.ipc.new_stream(ids, record.schema)
                writer.write_batch(record)
            if writer is None:
                raise ValueError("there are no pairs to encode")
            writer.close()
        for part, name in zip(parts, (LENGTHS, IDS), strict=True):
            part.replace(store / name)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


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
