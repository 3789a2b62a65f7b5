"""Parallel data, split by split: from files, from a known dataset, or generated."""

import json
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from regard.core.names import did_you_mean
from regard.data import DATASETS, GENERATED, generate, read_aligned, read_dataset, read_pairs
from regard.data.files import Report
from regard.data.pairs import Pairs
from regard.system.files import atomic_file, exclusive
from regard.tasks.settings import Count
from regard.training.settings import Settings

HELD_OUT = 20  # one in so many sources is for validation, and one for test
MOST_HELD_OUT = 2000


Files = Annotated[str | list[str], Field(description="a file of pairs, or two aligned files")]


class Data(Settings):
    """The table `[data]` of the task translate."""

    name: str | None = Field(None, description="a dataset; or else train")
    train: Files | None = Field(None, description="a file of pairs, or two aligned files")
    valid: Files | None = Field(
        None, description="if neither valid nor test is given, both are held out of train"
    )
    test: Files | None = Field(None, description="a file of pairs, or two aligned files")
    alignments: str | None = Field(
        None,
        description="a Pharaoh or NAACL file of the word alignments of train, for loss.guided",
    )
    format: Literal["tsv", "csv", "jsonl", "parquet", "dataset", "dict", "txt", "npz"] | None = (
        Field(None, description="by default, by the name; dataset is a directory of save_to_disk")
    )
    source: int | str | None = Field(
        None, description="column or key of the source; a number, from 0, if there are no names"
    )
    target: int | str | None = Field(None, description="column or key of the target")
    encoding: str | None = Field(
        None,
        description="of a csv, tsv or jsonl, such as cp949; by default by its byte order mark, or "
        "UTF-8",
    )
    delimiter: str | None = Field(
        None, description="between columns of csv, tsv and txt; by default found in the first line"
    )
    bad: Literal["refuse", "skip"] = Field(
        "refuse", description="how lines without a pair are handled"
    )
    folder: str | None = Field(None, description="folder of the dataset; by default REGARD_DATA")
    count: Count = Field(20_000, description="pairs to generate for training")
    valid_count: Count | None = Field(
        None, description="pairs for validation; by default all, or 1000 generated"
    )
    test_count: Count | None = Field(
        None, description="pairs for test; by default all, or 1000 generated"
    )
    source_tokenizer: str | None = Field(None, description="characters, words, bpe or phonemes")
    target_tokenizer: str | None = Field(None, description="the same; by default the dataset's own")
    joint: bool = Field(False, description="one tokenizer for both sides")
    vocabulary: Count | None = Field(None, description="largest size of a tokenizer")
    min_count: Count = Field(1, description="rarer tokens are unknown")
    tokens: Count | None = Field(
        None, description="tokens of a batch, padding of both sides included"
    )
    sentences: Count | None = Field(None, description="or pairs of a batch")
    pool: Count = Field(
        100, description="batches sorted by length together; 1 mixes pairs of all lengths"
    )
    longest: Count | None = Field(
        None, description="tokens of a side; longer pairs are not trained on"
    )
    store: str | None = Field(
        None, description="a folder for memory-mapped copies, if memory is too small"
    )
    metric: Literal["exact", "bleu", "accuracy", "loss"] | None = Field(
        None, description="chooses the best model; by default bleu for words, else exact"
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        known = [*GENERATED, *DATASETS]
        if name is not None and name not in known:
            raise ValueError(f"is not a known dataset{did_you_mean(name, known)}")
        return name

    @model_validator(mode="after")
    def _one_of_two(self) -> "Data":
        if (self.name is None) == (self.train is None):
            raise ValueError("give either name or train, the pairs to learn from")
        if self.tokens is not None and self.sentences is not None:
            raise ValueError("give either tokens or sentences, the size of a batch")
        return self


class Splits:
    """The splits of parallel data, each read on demand.

    Args:
        data: where they are
        seed: of generated data; files are read as they are
    """

    def __init__(self, data: Data, seed: int) -> None:
        self.data = data
        self.seed = seed

    def read(self, split: str) -> Pairs:
        """Return the pairs of "train", "valid" or "test"."""
        data = self.data
        count = {"train": None, "valid": data.valid_count, "test": data.test_count}[split]
        if data.name in GENERATED:
            count = data.count if split == "train" else count or 1000
            return generate(data.name, split, count=count, seed=self.seed)
        if data.name is not None:
            return read_dataset(data.name, split, folder=data.folder)[:count]
        if data.valid is None and data.test is None:
            return held_out(self._whole, split)[:count]
        given = {"train": data.train, "valid": data.valid, "test": data.test}
        if given[split] is None:  # one file serves as both valid and test
            split = "valid" if split == "test" else "test"
        return read_files(data, split, given[split])[:count]

    @cached_property
    def _whole(self) -> Pairs:
        return read_files(self.data, "train", self.data.train)


def read_files(data: Data, split: str, files: str | list[str] | None) -> Pairs:
    """Return the pairs of one file, or of two aligned ones.

    With a store they are read once: by the first of several processes, and never again while the
    files and the settings are the same.
    """
    assert files is not None
    if data.store is None:
        return _parse(data, split, files, {"bad": data.bad})
    path = Path(data.store) / f"{split}.arrow"
    key = _key(data, files)
    with exclusive(path.parent):
        stored = path.with_suffix(".json")
        if path.is_file() and stored.is_file():
            about = json.loads(stored.read_text("utf-8"))
            if about.pop("key", None) == key:
                return Pairs.open(path, Report.from_json(about))
        pairs = _parse(data, split, files, {"bad": data.bad, "store": path})
        with atomic_file(stored) as part:
            part.write_text(
                json.dumps({"key": key, **pairs.report.to_json()}), "utf-8", newline="\n"
            )
        return pairs


def _key(data: Data, files: str | list[str]) -> list[Any]:
    """What a store was read from: the files, as they are now, and how they were read."""
    names = [files] if isinstance(files, str) else files
    about = [Path(name).stat() for name in names if Path(name).exists()]
    options = data.model_dump(include={"format", "source", "target", "delimiter", "bad"})
    if data.encoding is not None:
        options["encoding"] = data.encoding
    return [names, [[one.st_size, one.st_mtime_ns] for one in about], options]


def _parse(data: Data, split: str, files: str | list[str], options: dict[str, Any]) -> Pairs:
    if data.encoding is not None:
        options["encoding"] = data.encoding
    if not isinstance(files, str):
        if len(files) != 2:
            raise ValueError(f"[data] {split} takes one file or two, got {len(files)}")
        return read_aligned(*files, **options)
    for key in ("source", "target", "delimiter"):
        if getattr(data, key) is not None:
            options[key] = getattr(data, key)
    return read_pairs(files, format=data.format, **options)


def held_out(pairs: Pairs, split: str) -> Pairs:
    """Return the part of a corpus that belongs to a split, by the checksums of its sources.

    Pairs with the same source are in the same split, in whatever order the lines are. Frames are
    split by their targets.
    """
    texts = pairs.sources if isinstance(pairs.sources[0], str) else pairs.targets
    sums = np.fromiter((zlib.crc32(text.encode()) for text in texts), np.uint32, len(pairs))
    ranks = np.unique(sums)
    size = min(max(1, len(ranks) // HELD_OUT), MOST_HELD_OUT)
    if len(ranks) < 3:
        raise ValueError(
            f"{pairs.report.name} has {len(ranks)} different source{'s' * (len(ranks) > 1)}, too "
            "few to hold out some for validation and test: give more pairs, or valid and test"
        )
    rank = np.searchsorted(ranks, sums)
    where = {"valid": rank < size, "test": (rank >= size) & (rank < 2 * size)}
    chosen = where.get(split, rank >= 2 * size).nonzero()[0]
    return Pairs(Picked(pairs.sources, chosen), Picked(pairs.targets, chosen), pairs.report)


class Picked(Sequence[Any]):
    """A view of some entries of a sequence, by their positions."""

    def __init__(self, entries: Sequence[Any], positions: np.ndarray) -> None:
        self.entries = entries
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Picked(self.entries, self.positions[index])
        return self.entries[int(self.positions[index])]
