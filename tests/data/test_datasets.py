from pathlib import Path

import numpy as np
import pytest

from regard.data import DATASETS, SPLITS, data_folder, read_dataset, read_pairs
from regard.system.files import checksum


@pytest.mark.parametrize(
    ("name", "first", "sizes"),
    [
        ("multi30k", ("Two young", "Zwei junge"), (29000, 1014, 1000)),
        ("multi30k-en-fr", ("Two young", "Deux jeunes"), (29000, 1014, 1000)),
        ("multi30k-de-en", ("Zwei junge", "Two young"), (29000, 1014, 1000)),
    ],
)
def test_multi30k_is_read_in_three_directions(real_data, name, first, sizes):
    splits = [read_dataset(name, split, folder=real_data) for split in SPLITS]
    assert tuple(map(len, splits)) == sizes
    assert all(text.startswith(start) for text, start in zip(splits[0][0], first, strict=True))


@pytest.mark.parametrize(("name", "side"), [("pronounce", 0), ("tatoeba", 1)])
def test_no_word_or_sentence_is_in_two_splits(real_data, name, side):
    kept = [{pair[side] for pair in read_dataset(name, s, folder=real_data)} for s in SPLITS]
    assert kept[0] & kept[1] == kept[0] & kept[2] == kept[1] & kept[2] == set()
    assert min(map(len, kept)) > 200


def test_pronounce_and_tatoeba_go_the_right_way(real_data):
    words = list(read_dataset("pronounce", "test", folder=real_data))
    assert ("ABDOMEN", "AE B D AH M AH N") in words
    assert ("쏴!", "Fire!") in list(read_dataset("tatoeba", folder=real_data))


def test_a_word_for_test_keeps_the_pronunciations_that_the_other_file_has(real_data):
    test = list(read_dataset("pronounce", "test", folder=real_data))
    held = read_pairs(real_data / "cmudict" / "dev.dict")
    assert test[: len(held)] == list(held)
    assert {word for word, _ in test} == set(held.sources)
    assert len(test) > len(held)


def test_the_checksums_are_those_of_the_files(real_data):
    remote = {file for dataset in DATASETS.values() for file in dataset.remote}
    assert len(remote) == 12
    for file in remote:
        assert checksum(real_data / file.path) == file.sha256


def test_the_dates_of_the_book_are_fixed_width(real_data):
    pairs = read_pairs(real_data / "dates_book" / "date.txt")
    assert len(pairs) == 50000
    assert pairs[0] == ("september 27, 1994", "1994-09-27")


def test_the_splits_of_the_book_are_its_own_or_of_distinct_lines(tmp_path):
    """As in the book: np.random.shuffle under the seed 1984, and the last tenth is for test."""
    (tmp_path / "dates_book").mkdir()
    lines = [(f"{n % 70}", "x") for n in range(100)]
    text = "".join(f"{source:<5}_{target}\n" for source, target in lines)
    (tmp_path / "dates_book" / "date.txt").write_text(text)
    for name, rows in (("dates-book", lines), ("dates-book-distinct", lines[:70])):
        order = np.arange(len(rows))
        np.random.RandomState(1984).shuffle(order)
        shuffled, cut = [rows[i] for i in order], len(rows) * 9 // 10
        assert list(read_dataset(name, "train", folder=tmp_path)) == shuffled[:cut]
        for split in ("valid", "test"):
            assert list(read_dataset(name, split, folder=tmp_path)) == shuffled[cut:]


def test_missing_data_is_an_error_with_the_command_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="regard data get pronounce"):
        read_dataset("pronounce", folder=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"download it from .*manythings"):
        read_dataset("tatoeba", folder=tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"get dates-book, or generate .* --set data\.name=dates$"
    ):
        read_dataset("dates-book", folder=tmp_path)
    with pytest.raises(ValueError, match="did you mean 'tatoeba'"):
        read_dataset("tatoba", folder=tmp_path)


def test_the_data_folder_is_the_one_asked_for_or_the_environments(monkeypatch):
    monkeypatch.setenv("REGARD_DATA", "there")
    assert data_folder() == Path("there")
    assert data_folder("here") == Path("here")
    monkeypatch.delenv("REGARD_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    assert data_folder() == Path("caches") / "regard"
