"""Compressed files that expand without proportion are refused before they are expanded."""

import gzip
import struct
import zipfile

import numpy as np
import pytest

from regard.data import files, read_frames, read_pairs
from regard.data.graph import read_planetoid
from regard.data.image import read_idx
from regard.data.labelled import read_documents

ZEROS = bytes(1 << 22)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Bombs of a few megabytes do for a test."""
    monkeypatch.setattr(files, "SMALL", 1 << 20)
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)


@pytest.mark.parametrize("read", [read_frames, read_planetoid])
def test_an_npz_bomb_is_refused(tmp_path, read):
    np.savez_compressed(tmp_path / "bomb.npz", frames=np.zeros((1 << 20, 2)))
    with pytest.raises(ValueError, match=r"bomb\.npz would expand to 16,777,344 bytes"):
        read(tmp_path / "bomb.npz")


def test_a_zip_bomb_of_documents_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pos/a.txt", ZEROS)
    with pytest.raises(ValueError, match=r"bomb\.zip would expand"):
        read_documents(tmp_path / "bomb.zip")


def test_a_gzip_bomb_without_a_line_end_is_refused(tmp_path):
    (tmp_path / "bomb.tsv.gz").write_bytes(gzip.compress(ZEROS))
    with pytest.raises(ValueError, match=r"bomb\.tsv\.gz, line 1, has over 1,048,576 characters"):
        read_pairs(tmp_path / "bomb.tsv.gz")


def test_an_idx_file_that_claims_to_be_large_is_refused(tmp_path):
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", 60_000, 1 << 15, 1 << 15)
    (tmp_path / "images").write_bytes(header)
    with pytest.raises(ValueError, match="images would expand to"):
        read_idx(tmp_path / "images", tmp_path / "images")


def test_an_npz_file_of_moderate_expansion_is_read(tmp_path):
    rng = np.random.default_rng(1)
    arrays = {"frames": rng.random((200_000, 2)), "lengths": [200_000], "targets": ["a"]}
    np.savez_compressed(tmp_path / "frames.npz", **arrays)
    assert len(read_frames(tmp_path / "frames.npz")) == 1
