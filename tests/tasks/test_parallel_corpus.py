import gzip

import pytest

from regard.data import Pairs, generate, write_frames
from regard.tasks.parallel_corpus import Data, Splits, held_out
from regard.training.settings import read_settings


def read(split, **table):
    return Splits(read_settings(Data, table, "data"), seed=1).read(split)


@pytest.fixture
def tsv(tmp_path):
    """Eleven different sources, the first of them twice."""
    file = tmp_path / "pairs.tsv"
    rows = [("one", "eins"), *((f"word {n}", f"Wort {n}") for n in range(10)), ("one", "ein")]
    file.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return file


def test_without_other_files_each_source_is_in_one_split_alone(tsv):
    splits = {name: read(name, train=str(tsv)) for name in ("train", "valid", "test")}
    assert sum(map(len, splits.values())) == 12
    assert all(len(pairs) for pairs in splits.values())
    sources = [set(pairs.sources) for pairs in splits.values()]
    assert not sources[0] & sources[1]
    assert not sources[0] & sources[2]
    assert not sources[1] & sources[2]


def test_held_out_pairs_do_not_depend_on_the_order_of_lines(tsv):
    turned = tsv.with_name("turned.tsv")
    turned.write_text("".join(reversed(tsv.read_text().splitlines(keepends=True))))
    valid = read("valid", train=str(tsv)), read("valid", train=str(turned))
    assert sorted(valid[0]) == sorted(valid[1])


def test_a_file_for_validation_leaves_the_training_file_whole(tsv):
    other = tsv.with_name("valid.tsv")
    other.write_text("two\tzwei\n")
    files = {"train": str(tsv), "valid": str(other)}
    assert len(read("train", **files)) == 12
    assert list(read("valid", **files)) == list(read("test", **files)) == [("two", "zwei")]


def test_two_aligned_files_json_lines_and_gzip_are_read(tmp_path):
    english, german = tmp_path / "a.en", tmp_path / "a.de.gz"
    english.write_text("one\ntwo\nthree\n")
    with gzip.open(german, "wt") as file:
        file.write("eins\nzwei\ndrei\n")
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"en": "one", "de": "eins"}\n')
    files = {"train": [str(english), str(german)], "valid": str(lines)}
    assert list(read("train", **files))[2] == ("three", "drei")
    valid = read("valid", **files, source="en", target="de")
    assert list(valid) == [("one", "eins")]


def test_frames_are_held_out_by_their_targets(tmp_path):
    write_frames(generate("signal", count=40), tmp_path / "frames.npz")
    splits = [read(name, train=str(tmp_path / "frames.npz")) for name in ("train", "valid", "test")]
    assert sum(map(len, splits)) == 40
    assert not set(splits[0].targets) & set(splits[1].targets)


def test_a_stored_corpus_gives_the_same_pairs(tsv, tmp_path):
    plain, mapped = (
        read("train", train=str(tsv)),
        read("train", train=str(tsv), store=str(tmp_path)),
    )
    assert list(plain) == list(mapped)
    assert (tmp_path / "train.arrow").is_file()


def test_generated_splits_have_the_configured_size():
    assert len(read("train", name="dates", count=7)) == 7
    assert len(read("test", name="dates", test_count=5)) == 5


def test_bad_lines_are_refused_or_skipped_and_reported(tsv):
    with tsv.open("a") as file:
        file.write("alone\n")
    with pytest.raises(ValueError, match=r"1 of 13 lines are bad: line 13 \(1 column"):
        read("train", train=str(tsv))
    assert read("train", train=str(tsv), bad="skip").report.count == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "is empty"), ("a\tb\n", "has 1 different source, too few"), ("a\tb\nc\td\n", "2 diff")],
)
def test_a_file_with_too_few_pairs_is_a_clear_error(tmp_path, content, message):
    file = tmp_path / "few.tsv"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        read("train", train=str(file))


def test_missing_files_folders_and_unequal_files_are_clear_errors(tmp_path, tsv):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read("train", train=str(tmp_path / "none.tsv"))
    with pytest.raises(IsADirectoryError, match="is a directory"):
        read("train", train=str(tmp_path))
    (tmp_path / "one.txt").write_text("a\n")
    with pytest.raises(ValueError, match="the same number of lines"):
        read("train", train=[str(tsv), str(tmp_path / "one.txt")])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "either name or train"),
        ({"name": "dates", "train": "a.tsv"}, "either name or train"),
        ({"name": "datse"}, "did you mean 'dates'"),
        ({"name": "dates", "tokns": 5}, "did you mean 'tokens'"),
        ({"name": "dates", "tokens": 0}, "data.tokens should be greater"),
        ({"name": "dates", "tokens": 5, "sentences": 5}, "either tokens or sentences"),
        ({"name": "dates", "count": "many"}, "data.count should be a whole number"),
        ({"train": ["a", "b", "c"]}, "one file or two, got 3"),
    ],
)
def test_a_wrong_table_is_a_clear_error(table, message):
    with pytest.raises(ValueError, match=message):
        read("train", **table)


def test_a_column_that_a_format_does_not_have_is_a_clear_error(tmp_path):
    (tmp_path / "a.dict").write_text("CAT  K AE T\n")
    with pytest.raises(ValueError, match=r"the format dict takes no data\.source"):
        read("train", train=str(tmp_path / "a.dict"), source=0)


def test_held_out_parts_are_small():
    pairs = Pairs.collect([(f"{n}", "x") for n in range(1000)])
    assert [len(held_out(pairs, name)) for name in ("train", "valid", "test")] == [900, 50, 50]


def test_a_store_is_read_again_only_if_the_file_has_changed(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("a\tb\nc\nd\te\n")
    settings = {"train": str(file), "valid": str(file), "store": str(tmp_path / "s"), "bad": "skip"}
    first = read("train", **settings)
    written = (tmp_path / "s" / "train.arrow").stat().st_mtime_ns
    again = read("train", **settings)
    assert (tmp_path / "s" / "train.arrow").stat().st_mtime_ns == written
    assert list(again) == list(first) == [("a", "b"), ("d", "e")]
    assert str(again.report) == str(first.report)
    assert again.origin is not None  # mapped, not a list in memory
    assert again.report.count == 1
    file.write_text("a\tb\nc\td\nd\te\n")
    assert len(read("train", **settings)) == 3
