import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.data import Batches, Encoded, Pairs, encode_pairs, encoded, generate, train_tokenizers

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def dates():
    pairs = generate("dates", count=9001, seed=3)  # more than one block
    return pairs, *train_tokenizers(pairs)


def test_stored_ids_are_those_in_memory_and_those_of_the_tokenizers(dates, tmp_path):
    pairs, source, target = dates
    plain = encode_pairs(pairs, source, target)
    stored = encode_pairs(pairs, source, target, store=tmp_path / "corpus")
    assert len(plain) == len(stored) == len(Encoded.open(tmp_path / "corpus")) == 9001
    for index in (0, 8191, 8192, 9000, -1):
        expected = source.encode(pairs[index][0]), target.encode(pairs[index][1])
        for corpus in (plain, stored):
            assert tuple(side.tolist() for side in corpus[index]) == expected
    np.testing.assert_array_equal(plain.lengths, stored.lengths)
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == [
        "ids-00000.arrow",
        "key.txt",
        "lengths.bin",
    ]


def test_lengths_count_the_begin_and_end_of_targets(dates):
    corpus = encode_pairs(*dates)
    batch = corpus.batch([5, 8999, 7])
    assert batch.index.tolist() == [5, 8999, 7]
    assert batch.source_lengths.tolist() == corpus.lengths[[5, 8999, 7], 0].tolist()
    assert batch.target_lengths.tolist() == corpus.lengths[[5, 8999, 7], 1].tolist()
    pairs, source, target = dates
    assert [source.decode(row) for row in batch.source] == [pairs[i][0] for i in (5, 8999, 7)]
    assert [target.decode(row) for row in batch.target] == [pairs[i][1] for i in (5, 8999, 7)]


def test_every_batch_of_an_order_can_be_made(dates):
    corpus = encode_pairs(*dates)
    order = Batches(corpus.lengths, tokens=2003).order(0)
    batch = corpus.batch(order[3])
    assert batch.source.numel() + batch.target.numel() <= 2003


def test_frames_are_stored_as_they_are(tmp_path):
    pairs = generate("signal", count=7)
    _, target = train_tokenizers(Pairs(pairs.targets, pairs.targets), target="phonemes")
    plain = encode_pairs(pairs, None, target)
    stored = encode_pairs(pairs, None, target, store=tmp_path)
    for corpus in (plain, stored):
        for (frames, ids), (theirs, text) in zip(corpus, pairs, strict=True):
            np.testing.assert_array_equal(frames, theirs)
            assert target.decode(ids) == text
    assert stored.batch([2, 3]).source.shape[2] == 12


def test_no_pair_and_an_empty_source_are_refused_and_leave_nothing(dates, tmp_path):
    _, source, target = dates
    with pytest.raises(ValueError, match="no pair"):
        encode_pairs(Pairs([], []), source, target, store=tmp_path)
    with pytest.raises(ValueError, match="no pair"):
        encode_pairs(Pairs([], []), source, target)
    with pytest.raises(ValueError, match="pair 1 has an empty source"):
        encode_pairs(Pairs(["1", ""], ["1", "1"]), source, target, store=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_is_refused_in_a_sentence(dates, tmp_path):
    encode_pairs(*dates, store=tmp_path)
    with (tmp_path / "lengths.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match="damaged: encode the pairs again"):
        Encoded.open(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Encoded.open(tmp_path / "absent")


def test_a_corpus_is_encoded_in_parts_and_a_killed_process_continues(dates, tmp_path, monkeypatch):
    pairs, source, target = dates
    monkeypatch.setattr(encoded, "PART", 2000)
    plain = encode_pairs(pairs, source, target)
    stored = encode_pairs(pairs, source, target, store=tmp_path)
    assert len(list(tmp_path.glob("ids-*.arrow"))) == 5
    assert [side.tolist() for side in stored[8123]] == [side.tolist() for side in plain[8123]]
    np.testing.assert_array_equal(plain.lengths, stored.lengths)
    # as after a kill: the first part is complete, the others are not
    np.asarray(stored.lengths[:2000]).tofile(tmp_path / "lengths-00000.bin")
    (tmp_path / "lengths.bin").unlink()
    before = (tmp_path / "ids-00000.arrow").stat().st_mtime_ns
    (tmp_path / "ids-00003.arrow").write_bytes(b"half")
    again = encode_pairs(pairs, source, target, store=tmp_path)
    np.testing.assert_array_equal(plain.lengths, again.lengths)
    assert again[8123][1].tolist() == plain[8123][1].tolist()
    assert (tmp_path / "ids-00000.arrow").stat().st_mtime_ns == before


def test_a_store_is_used_again_only_for_the_same_pairs_and_tokenizers(dates, tmp_path):
    pairs, source, target = dates
    encode_pairs(pairs, source, target, store=tmp_path)
    before = (tmp_path / "ids-00000.arrow").stat().st_mtime_ns
    encode_pairs(pairs, source, target, store=tmp_path)
    assert (tmp_path / "ids-00000.arrow").stat().st_mtime_ns == before
    other = encode_pairs(pairs[:100], target, target, store=tmp_path)
    assert len(other) == 100
    assert other[7][0].tolist() == target.encode(pairs[7][0])


MEMORY = """
import re, sys
from pathlib import Path
from regard.data import Batches, encode_pairs, read_pairs, train_tokenizers

def private():  # bytes of memory that no file backs
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def corpus(folder, lines):
    path = folder / "pairs.tsv"
    with path.open("w") as file:
        for n in range(lines):
            file.write(f"{n} the quick brown fox jumps over many a hedge and ditch\\t")
            file.write(f"{n} the lazy dog, who has seen it all, goes back to sleep\\n")
    pairs = read_pairs(path, store=folder / "pairs.arrow")
    tokenizers = train_tokenizers(pairs[:1000], "words", "words")
    encoded = encode_pairs(pairs, *tokenizers, store=folder / "ids")
    order = Batches(encoded.lengths, sentences=512).order(0)
    for position in range(0, len(order), 7):
        encoded.batch(order[position])
    sizes = sum((folder / name).stat().st_size for name in ("pairs.arrow", "ids/ids-00000.arrow"))
    return (pairs, encoded), sizes  # both stay open while memory is measured

small, _ = corpus(Path(sys.argv[1]), 30_000)  # fills what libraries keep for themselves
before = private()
large, size = corpus(Path(sys.argv[2]), 200_000)
print(private() - before, size)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of it")
def test_private_memory_does_not_grow_with_the_corpus(tmp_path):
    folders = [tmp_path / "small", tmp_path / "large"]
    for folder in folders:
        folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEMORY, *map(str, folders)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    growth, size = map(int, run.stdout.split())
    assert size > 40e6
    assert growth < size / 5
