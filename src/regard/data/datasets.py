"""Datasets that are read from a directory: multi30k, pronounce, tatoeba, dates-book."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.core.names import check_name
from regard.data.generated import check_split, split_of
from regard.data.pairs import Pairs
from regard.data.readers import read_aligned, read_dictionary, read_fixed_width, read_table

MULTI30K = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab/data/task1/raw/"
)
CMUDICT = (
    "https://raw.githubusercontent.com/microsoft/CNTK/9bb7e86bb11d57a8c8eb6bba329a134b75f10fb3/"
    "Examples/SequenceToSequence/CMUDict/Data/cmudict-0.7b."
)
DATES_BOOK = (
    "https://raw.githubusercontent.com/oreilly-japan/deep-learning-from-scratch-2/"
    "5473be8cd112c446c62c77535766280d445c17a7/dataset/date.txt"
)


class Remote(NamedTuple):
    """A file of a dataset and its origin."""

    path: str  # relative to the data directory
    url: str
    sha256: str


class Dataset(NamedTuple):
    """A dataset that is read from files: description, licence, reader and files."""

    about: str
    licence: str
    read: Callable[[Path, str], Pairs]  # (data directory, split)
    files: tuple[str, ...]  # relative to the data directory
    remote: tuple[Remote, ...]  # empty: to be downloaded by hand
    source: str  # kind of the source tokenizer
    target: str  # kind of the target tokenizer
    home: str
    instead: str = ""  # a command that needs no file


def data_folder(folder: str | Path | None = None) -> Path:
    """The directory of datasets: the given one, else REGARD_DATA, else the user's cache."""
    if folder is not None:
        return Path(folder)
    if "REGARD_DATA" in os.environ:
        return Path(os.environ["REGARD_DATA"])
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "regard"


def data_file(name: str, file: str, folder: str | Path | None = None) -> Path:
    """The path of a file of a dataset, in `data_folder`.

    Raises:
        FileNotFoundError: if it does not exist
    """
    path = data_folder(folder) / file
    if not path.is_file():
        raise FileNotFoundError(
            f"{name} needs {path}, which does not exist; set REGARD_DATA to the data directory"
        )
    return path


def read_dataset(name: str, split: str = "train", *, folder: str | Path | None = None) -> Pairs:
    """Read a split of a dataset.

    Args:
        name: "multi30k" (en→de), "multi30k-en-fr", "multi30k-de-en", "pronounce", "tatoeba",
            "dates-book" or "dates-book-distinct"
        split: "train", "valid" or "test"
        folder: the data directory; by default `data_folder()`

    Raises:
        FileNotFoundError: if it does not exist, with how to get it
    """
    dataset = find_dataset(name)
    check_split(split)
    folder = data_folder(folder)
    missing = [file for file in dataset.files if not (folder / file).is_file()]
    if missing:
        how = f"regard data get {name}" if dataset.remote else f"download it from {dataset.home}"
        how += f", or generate such data: {dataset.instead}" if dataset.instead else ""
        raise FileNotFoundError(f"{name} needs {folder / missing[0]}, which does not exist: {how}")
    return dataset.read(folder, split)


def find_dataset(name: str) -> Dataset:
    """The dataset of a name."""
    check_name("dataset", name, DATASETS)
    return DATASETS[name]


def _multi30k(source: str, target: str) -> Callable[[Path, str], Pairs]:
    stems = {"train": "train", "valid": "val", "test": "test_2016_flickr"}

    def read(folder: Path, split: str) -> Pairs:
        stem = folder / "multi30k" / stems[split]
        # A few captions start or end with a space that is not part of the sentence.
        pairs = read_aligned(f"{stem}.{source}.gz", f"{stem}.{target}.gz")
        rows = ((str(s).strip(), t.strip()) for s, t in pairs)
        return Pairs.collect(rows, pairs.report)

    return read


def _pronounce(folder: Path, split: str) -> Pairs:
    """Each word is in one split. Words of dev.dict are for test, with all their pronunciations,
    some of which are in train.dict."""
    held = read_dictionary(folder / "cmudict" / "dev.dict")
    rest = read_dictionary(folder / "cmudict" / "train.dict")
    words = set(held.sources)
    if split == "test":
        others = [pair for pair in rest if pair[0] in words]
        return Pairs.collect([*held, *others], held.report)
    wanted = {"train": ("train", "test"), "valid": ("valid",)}[split]
    rows = (pair for pair in rest if pair[0] not in words and split_of(str(pair[0])) in wanted)
    return Pairs.collect(rows, rest.report)


def _tatoeba(folder: Path, split: str) -> Pairs:
    """Korean → English; all translations of an English sentence are in one split."""
    pairs = read_table(folder / "tatoeba_ko_en" / "kor.txt", format="tsv", source=1, target=0)
    return Pairs.collect((pair for pair in pairs if split_of(pair[1]) == split), pairs.report)


def _dates_book(*, distinct: bool) -> Callable[[Path, str], Pairs]:
    def read(folder: Path, split: str) -> Pairs:
        """The book's shuffle of its lines; one in ten is for test, and for validation too."""
        pairs = read_fixed_width(folder / "dates_book" / "date.txt")
        rows = list(dict.fromkeys(pairs)) if distinct else list(pairs)
        order = np.random.RandomState(1984).permutation(len(rows))
        cut = len(rows) - len(rows) // 10
        chosen = order[:cut] if split == "train" else order[cut:]
        return Pairs.collect((rows[i] for i in chosen), pairs.report)

    return read


# sha256 of the files of Multi30k, task 1, and of CMUDict 0.7b without stress.
_MULTI30K_SUMS = {
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}
_CMUDICT_SUMS = {
    "train": "61faa823e4a4bc64401522eb68db9543d33ee6f10dcacf5be65b1ef5fe08b6f3",
    "dev": "c8bbfb8d57d8e0c1d2ce6fbc8891325fc4570ac2b9ae068088bc59e804a9c295",
}


def _multi30k_dataset(source: str, target: str) -> Dataset:
    remote = tuple(
        Remote(f"multi30k/{name}.gz", f"{MULTI30K}{name}.gz", sha256)
        for name, sha256 in _MULTI30K_SUMS.items()
        if name.endswith((source, target))
    )
    return Dataset(
        about=f"image captions, {source} → {target}; 29,000 for training",
        licence="non-commercial research; captions: Elliott et al. 2016 and 2017, after Flickr30k",
        read=_multi30k(source, target),
        files=tuple(file.path for file in remote),
        remote=remote,
        source="bpe",
        target="bpe",
        home="https://github.com/multi30k/dataset",
    )


def _dates_book_dataset(*, distinct: bool) -> Dataset:
    return Dataset(
        about="the dates of a textbook (Saito 2018) → ISO 8601; "
        + ("41,578 distinct lines" if distinct else "50,000 lines, some of them repeated"),
        licence="MIT, © 2018 Koki Saitoh",
        read=_dates_book(distinct=distinct),
        files=("dates_book/date.txt",),
        remote=(
            Remote(
                "dates_book/date.txt",
                DATES_BOOK,
                "62e66a301ce8537868e725512d2a45663fc366526b7e42028cb703bda2b1c79a",
            ),
        ),
        source="characters",
        target="characters",
        home="https://github.com/oreilly-japan/deep-learning-from-scratch-2",
        instead="regard train dates-book --set data.name=dates",
    )


DATASETS = {
    "multi30k": _multi30k_dataset("en", "de"),
    "multi30k-en-fr": _multi30k_dataset("en", "fr"),
    "multi30k-de-en": _multi30k_dataset("de", "en"),
    "pronounce": Dataset(
        about="English words → their phonemes (CMUDict 0.7b without stress); 109,000 words",
        licence="BSD, © 1993–2015 Carnegie Mellon University",
        read=_pronounce,
        files=("cmudict/train.dict", "cmudict/dev.dict"),
        remote=(
            Remote("cmudict/train.dict", f"{CMUDICT}train-dev-20-21", _CMUDICT_SUMS["train"]),
            Remote("cmudict/dev.dict", f"{CMUDICT}train-dev-1-21", _CMUDICT_SUMS["dev"]),
        ),
        source="characters",
        target="phonemes",
        home="http://www.speech.cs.cmu.edu/cgi-bin/cmudict",
    ),
    "tatoeba": Dataset(
        about="Korean sentences → English; split by English sentence",
        licence="CC BY 2.0 FR, tatoeba.org, by way of manythings.org/anki",
        read=_tatoeba,
        files=("tatoeba_ko_en/kor.txt",),
        remote=(),  # kor-eng.zip changes with time, so that it has no checksum
        source="characters",
        target="characters",
        home="kor-eng.zip of https://www.manythings.org/anki/",
    ),
    "dates-book": _dates_book_dataset(distinct=False),
    "dates-book-distinct": _dates_book_dataset(distinct=True),
}


class LocalFiles(NamedTuple):
    """A dataset of another task, read from files that are downloaded by hand."""

    about: str
    licence: str
    files: tuple[str, ...]  # relative to the data directory
    home: str


LOCAL_FILES = {
    "movie_reviews": LocalFiles(
        "2,000 English movie reviews and their sentiment (Pang and Lee 2004)",
        "CC BY 4.0",
        ("movie_reviews/movie_reviews.zip",),
        "https://www.cs.cornell.edu/people/pabo/movie-review-data/",
    ),
    "nsmc": LocalFiles(
        "150,000 Korean movie reviews and their sentiment",
        "CC0",
        ("nsmc/train.tsv.gz",),
        "https://github.com/e9t/nsmc",
    ),
    "tinyshakespeare": LocalFiles(
        "1.1 million characters of Shakespeare's plays",
        "public domain",
        ("tinyshakespeare/input.txt",),
        "https://github.com/karpathy/char-rnn",
    ),
    "cora": LocalFiles(
        "2,708 papers of seven topics and their citations",
        "MIT",
        ("planetoid/cora.npz",),
        "https://github.com/kimiyoung/planetoid",
    ),
    "citeseer": LocalFiles(
        "3,327 papers of six topics and their citations",
        "MIT",
        ("planetoid/citeseer.npz",),
        "https://github.com/kimiyoung/planetoid",
    ),
}
