import json

import numpy as np
import pytest

from regard.data import Pairs, from_dataset, read_frames, read_pairs, read_tsv, write_frames


def test_the_ending_of_the_name_chooses_the_reader(tmp_path):
    for name, text in {
        "a.tsv": "x\ty\n",
        "a.jsonl": json.dumps({"source": "x", "target": "y"}),
        "a.dict": "x  y\n",
        "a.txt": "x_y\n",
    }.items():
        (tmp_path / name).write_text(text)
        assert list(read_pairs(tmp_path / name)) == [("x", "y")]
    (tmp_path / "noname").write_text("x\ty\n")
    assert list(read_pairs(tmp_path / "noname", format="tsv")) == [("x", "y")]


def test_an_unknown_format_suggests_the_nearest(tmp_path):
    (tmp_path / "a.json").touch()
    with pytest.raises(ValueError, match="did you mean 'jsonl'"):
        read_pairs(tmp_path / "a.json")
    with pytest.raises(IsADirectoryError):
        read_pairs(tmp_path)


def test_a_dataset_gives_its_columns_nested_ones_too():
    datasets = pytest.importorskip("datasets")
    rows = [{"translation": {"en": "one", "de": "eins"}}, {"translation": {"en": "two", "de": ""}}]
    dataset = datasets.Dataset.from_list(rows)
    pairs = from_dataset(dataset, source="translation.de", target="translation.en", bad="skip")
    assert list(pairs) == [("eins", "one")]
    assert pairs.report.examples == [(2, "no text in 'translation.de'")]
    with pytest.raises(ValueError, match=r"no column 'translation\.fr'; .*en, de|de, en"):
        from_dataset(dataset, source="translation.fr", target="translation.en")


def test_the_datasets_library_opens_a_store(tmp_path):
    datasets = pytest.importorskip("datasets")
    (tmp_path / "a.tsv").write_text("x\ty\nv\tw\n")
    read_tsv(tmp_path / "a.tsv", store=tmp_path / "a.arrow")
    dataset = datasets.Dataset.from_file(str(tmp_path / "a.arrow"))
    assert dataset[1] == {"source": "v", "target": "w"}


FRAMES = [np.random.default_rng(7).normal(size=(n, 3)).astype(np.float32) for n in (5, 2, 7)]


def test_frames_come_back_as_they_were_written(tmp_path):
    write_frames(Pairs(FRAMES, ["a b", "c", "d"]), tmp_path / "a.npz")
    read = read_pairs(tmp_path / "a.npz")
    assert list(read.targets) == ["a b", "c", "d"]
    for ours, theirs in zip(read.sources, FRAMES, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_padded_frames_lose_their_padding(tmp_path):
    padded = np.full((3, 7, 3), np.nan, np.float32)
    for row, frames in zip(padded, FRAMES, strict=True):
        row[: len(frames)] = frames
    np.savez(tmp_path / "a.npz", frames=padded, lengths=[5, 2, 7], targets=["a", "b", "c"])
    for ours, theirs in zip(read_frames(tmp_path / "a.npz").sources, FRAMES, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_bad_frames_are_reported_by_number(tmp_path):
    frames = np.zeros((3, 7, 2))
    frames[1, 0, 0] = np.inf
    np.savez(tmp_path / "a.npz", frames=frames, lengths=[8, 2, 7], targets=["a", "b", "c"])
    with pytest.raises(ValueError, match="2 of 3 lines are bad"):
        read_frames(tmp_path / "a.npz")
    pairs = read_frames(tmp_path / "a.npz", bad="skip")
    assert pairs.report.examples == [(1, "a length of 8"), (2, "a frame that is not finite")]
    assert pairs.targets == ["c"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"frames": np.zeros((4, 2), int)}, "frames must be float"),
        ({"lengths": np.array([1, 2])}, "add up to 3"),
        ({"lengths": np.array([4])}, "one length and one target"),
        ({"lengths": np.array([2.0, 2.0])}, "whole numbers"),
        ({"targets": None}, "no array targets"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, change, complaint):
    arrays = {"frames": np.zeros((4, 2)), "lengths": np.array([2, 2]), "targets": ["a", "b"]}
    arrays = {name: array for name, array in (arrays | change).items() if array is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=complaint):
        read_frames(tmp_path / "a.npz")


def test_a_file_that_is_no_npz_is_refused(tmp_path):
    (tmp_path / "a.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"a\.npz"):
        read_frames(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.zeros(3))
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"b\.npz is not an npz file"):
        read_frames(tmp_path / "b.npz")


def test_a_file_that_is_not_there_is_said_to_be_missing_whatever_its_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere"):
        read_pairs(tmp_path / "nowhere")
