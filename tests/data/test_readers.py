import codecs
import gzip
import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import (
    Pairs,
    from_dataset,
    read_aligned,
    read_dictionary,
    read_fixed_width,
    read_frames,
    read_pairs,
    read_table,
    read_text,
    write_frames,
)

TSV = "a cat\teine Katze\nzwei\ttwo\n고양이\tcat 🐈\n"
EXPECTED = [("a cat", "eine Katze"), ("zwei", "two"), ("고양이", "cat 🐈")]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        raw = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_tsv_is_read_plain_and_gzipped(write, name):
    pairs = read_pairs(write(name, TSV))
    assert list(pairs) == EXPECTED
    assert pairs.report.lines == 3
    assert pairs.report.count == 0


def test_columns_are_chosen_by_number(write):
    path = write("a.tsv", "1\tone\teins\n2\ttwo\tzwei\n")
    assert list(read_pairs(path, source=2, target=1)) == [("eins", "one"), ("zwei", "two")]


def test_windows_line_ends_and_a_byte_order_mark_are_no_text(write):
    assert list(read_pairs(write("a.tsv", b"\xef\xbb\xbfa\tb\r\nc\td"))) == [("a", "b"), ("c", "d")]


def test_only_a_line_feed_ends_a_line(write):
    assert read_pairs(write("a.tsv", "a\u2028b\x85c\td\x0ce\n"))[0] == ("a\u2028b\x85c", "d\x0ce")


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_aligned_files_are_read_side_by_side(write, gz):
    source, target = write(f"s{gz}", "a\nb\n"), write(f"t{gz}", "c\nd")
    assert list(read_aligned(source, target)) == [("a", "c"), ("b", "d")]


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 2)])
def test_mismatched_line_counts_are_refused_with_both_counts(write, left, right):
    source, target = write("s.txt", "x\n" * left), write("t.txt", "y\n" * right)
    with pytest.raises(ValueError, match=rf"s\.txt has {left} and .*t\.txt has {right}"):
        read_aligned(source, target, bad="skip")


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_json_lines_are_read_by_key(write, gz):
    rows = [{"en": s, "de": t, "other": 7} for s, t in EXPECTED]
    path = write(f"a.jsonl{gz}", "".join(json.dumps(row) + "\n" for row in rows))
    assert list(read_pairs(path, source="en", target="de")) == EXPECTED


def test_bad_json_lines_are_told_apart(write):
    good = '{"source": "a", "target": "b"}'
    lines = [
        good,
        "{",
        "[1]",
        '{"source": "a"}',
        '{"source": "a", "target": "\\ud800"}',
        "[" * 99999,
    ]
    pairs = read_pairs(write("a.jsonl", "\n".join(lines)), bad="skip")
    assert list(pairs) == [("a", "b")]
    assert [line for line, _ in pairs.report.examples] == [2, 3, 4, 5, 6]
    assert [reason for _, reason in pairs.report.examples][:3] == [
        "not JSON",
        "not a JSON object",
        "no text under 'target'",
    ]


def test_a_dictionary_drops_comments_and_numbers_of_variants(write):
    text = ";;; comment\nCAT  K AE1 T\nREAD(2)  R EH1 D\nfoo F UW1 # a note\n"
    path = write("a.dict", text)
    assert list(read_dictionary(path)) == [
        ("CAT", "K AE1 T"),
        ("READ", "R EH1 D"),
        ("foo", "F UW1"),
    ]
    assert read_dictionary(path, stress=False)[0] == ("CAT", "K AE T")


def test_a_word_without_phonemes_is_a_bad_line(write):
    pairs = read_dictionary(write("a.dict", "CAT  K AE T\nDOG\n # x\n"), bad="skip")
    assert [line for line, _ in pairs.report.examples] == [2, 3]


def test_fixed_width_is_cut_at_the_column_of_the_first_separator(write):
    path = write("a.txt", "16+75  _91  \n52+607 _659 \n1_2+3  _x\n")
    assert list(read_fixed_width(path)) == [("16+75", "91"), ("52+607", "659"), ("1_2+3", "x")]


def test_a_separator_in_another_column_is_a_bad_line(write):
    pairs = read_fixed_width(write("a.txt", "ab _c\na_b c\nxyz\n"), bad="skip")
    assert pairs.report.examples == [(2, "no '_' in column 4"), (3, "no '_' in column 4")]


BAD = b"a\tb\nonly one\n\t \nc\xff\td\n\ne\t\nx\ty\tz\nf\tg\n"


def test_bad_lines_are_skipped_when_asked_and_reported_with_their_numbers(write):
    pairs = read_pairs(write("bad.tsv", BAD), bad="skip")
    assert list(pairs) == [("a", "b"), ("f", "g")]
    assert pairs.report.lines == 8
    assert pairs.report.count == 6
    assert pairs.report.examples == [
        (2, "1 column instead of 2"),
        (3, "an empty line"),
        (4, "the line is not UTF-8: choose data.encoding, such as cp949"),
        (5, "an empty line"),
        (6, "the target is empty"),
        (7, "3 columns instead of 2"),
    ]
    assert "6 of 8 lines are bad: line 2 (1 column instead of 2)" in str(pairs.report)


def test_bad_lines_are_refused_unless_skipping_is_asked_for(write):
    with pytest.raises(ValueError, match=r"6 of 8 lines are bad: line 2 .* line 7"):
        read_pairs(write("bad.tsv", BAD))


def test_many_bad_lines_are_all_counted_and_the_first_are_named(write):
    path = write("bad.tsv", "a\tb\n" + "x\n" * 1009)
    report = read_pairs(path, bad="skip").report
    assert report.count == report.reasons["1 column instead of 2"] == 1009
    assert len(report.examples) == 20
    assert str(report).endswith("bad: 1 column instead of 2 (lines 2, 3, 4, and 1,006 more)")


def test_invalid_utf8_in_an_aligned_file_skips_the_pair_and_names_the_side(write):
    source, target = write("s", b"a\nb\xc3\nc\nd\n"), write("t", b"e\nf\n\ng\n")
    pairs = read_aligned(source, target, bad="skip")
    assert list(pairs) == [("a", "e"), ("d", "g")]
    assert pairs.report.examples == [
        (2, "the source is not UTF-8: choose data.encoding, such as cp949"),
        (3, "the target is empty"),
    ]


READ_ONE = [
    partial(read_table, format="tsv"),
    partial(read_table, format="jsonl"),
    read_dictionary,
    read_fixed_width,
]


@pytest.mark.parametrize("read", [*READ_ONE, lambda path: read_aligned(path, path)])
def test_missing_empty_and_directory_are_one_sentence(read, tmp_path, write):
    with pytest.raises(FileNotFoundError, match=r"file .*absent.* does not exist"):
        read(tmp_path / "absent")
    with pytest.raises(IsADirectoryError, match="is a directory, not a file"):
        read(tmp_path)
    with pytest.raises(ValueError, match="is empty"):
        read(write("empty", ""))


def test_one_line_is_a_corpus(write):
    assert list(read_pairs(write("one.tsv", "a\tb"))) == [("a", "b")]


def test_a_file_of_bad_lines_only_is_refused_even_when_skipping(write):
    with pytest.raises(ValueError, match=r"all lines are bad.*2 of 2"):
        read_pairs(write("bad.tsv", "a\nb\n"), bad="skip")


def test_a_truncated_gzip_file_is_refused_in_a_sentence(tmp_path):
    whole = gzip.compress("".join(f"{n}\t{n * n}\n" for n in range(5003)).encode())
    path = tmp_path / "cut.tsv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.tsv\.gz is damaged or truncated"):
        read_pairs(path)


def test_a_misspelt_way_with_bad_lines_is_refused(write):
    with pytest.raises(ValueError, match="'refuse' or 'skip', got 'ignore'"):
        read_pairs(write("a.tsv", TSV), bad="ignore")


def test_stored_pairs_are_those_in_memory_and_reopen(write, tmp_path):
    path = write("a.tsv", TSV * 7001)  # more than one block
    store = tmp_path / "deep" / "pairs.arrow"
    stored, plain = read_pairs(path, store=store), read_pairs(path)
    assert list(stored) == list(plain)
    assert [stored[i] for i in (0, 8191, 8192, -1)] == [plain[i] for i in (0, 8191, 8192, -1)]
    assert list(stored[8190:8194]) == list(plain[8190:8194])
    assert list(Pairs.open(store)) == list(plain)


def test_a_refused_file_leaves_no_store_behind(write, tmp_path):
    with pytest.raises(ValueError, match="bad"):
        read_pairs(write("bad.tsv", BAD), store=tmp_path / "pairs.arrow")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tsv"]


def test_a_store_that_is_something_else_is_refused(write):
    with pytest.raises(ValueError, match="is not an Arrow file"):
        Pairs.open(write("a.arrow", TSV))


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=7))
def test_what_is_written_as_tsv_is_read_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tsv") / "a.tsv"
    path.write_bytes("".join(f"{s}\t{t}\n" for s, t in rows).encode())
    expected = [(rows[0][0].removeprefix("\ufeff"), rows[0][1]), *rows[1:]]
    if expected[0][0].strip():
        assert list(read_pairs(path)) == expected


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
    assert pairs.report.examples == [(2, "the source is empty")]
    with pytest.raises(ValueError, match=r"no column 'translation\.fr'; .*en, de|de, en"):
        from_dataset(dataset, source="translation.fr", target="translation.en")


def test_the_datasets_library_opens_a_store(tmp_path):
    datasets = pytest.importorskip("datasets")
    (tmp_path / "a.tsv").write_text("x\ty\nv\tw\n")
    read_pairs(tmp_path / "a.tsv", store=tmp_path / "a.arrow")
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
    with pytest.raises(FileNotFoundError, match=r"file .*nowhere.* does not exist"):
        read_pairs(tmp_path / "nowhere")


def compressed(path, text, ending):
    import pyarrow as pa

    path = path.with_name(path.name + ending)
    with pa.output_stream(str(path), compression="zstd" if ending == ".zst" else "gzip") as file:
        file.write(text.encode())
    return path


CSV = 'id;de;en\n1;"eine; Katze";a cat\n2;"zwei\nZeilen";two lines\n3;"ein ""Wort""";고양이\n'
OF_CSV = [("a cat", "eine; Katze"), ("two lines", "zwei\nZeilen"), ("고양이", 'ein "Wort"')]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "~"])
def test_csv_is_read_by_name_with_quotes_and_any_delimiter(write, delimiter):
    path = write("a.csv", CSV.replace(";", delimiter))
    given = {"delimiter": "~"} if delimiter == "~" else {}
    expected = [(s, t.replace(";", delimiter)) for s, t in OF_CSV]
    assert list(read_pairs(path, source="en", target="de", **given)) == expected


def test_csv_without_names_is_read_by_number(write):
    assert list(read_pairs(write("a.csv", "1,b\nc,d\n"), source=1, target=0)) == [
        ("b", "1"),
        ("d", "c"),
    ]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_compressed_formats_are_read_by_their_endings(tmp_path, ending):
    for name, text in (
        ("a.csv", "source,target\none,eins\n"),
        ("a.tsv", "one\teins\n"),
        ("a.txt", "one ||| eins\n"),
        ("a.jsonl", '{"source": "one", "target": "eins"}\n'),
    ):
        path = tmp_path / name
        path.write_text(text)
        path = compressed(path, text, ending) if ending else path
        assert list(read_pairs(path)) == [("one", "eins")]


def test_a_damaged_or_exploding_zstd_file_is_refused(tmp_path):
    path = compressed(tmp_path / "a.tsv", "".join(f"{n}\t{n}\n" for n in range(9973)), ".zst")
    path.write_bytes(path.read_bytes()[:-999])
    with pytest.raises(ValueError, match="is damaged or truncated"):
        read_pairs(path)
    large = compressed(tmp_path / "b.tsv", "a" * (257 << 20), ".zst")
    with pytest.raises(ValueError, match="has over 268,435,456 characters"):
        read_pairs(large)


def test_many_lines_of_an_exploding_file_are_refused(tmp_path, monkeypatch):
    from regard.data import files

    monkeypatch.setattr(files, "SMALL", 4096)
    for ending in (".gz", ".zst"):
        path = compressed(tmp_path / "a.tsv", "aaaa\tbbbb\n" * 99991, ending)
        with pytest.raises(ValueError, match="more than 100 times its size"):
            read_pairs(path)


def test_bad_rows_of_a_csv_are_reported_by_line(write):
    raw = b'source,target\n"a\nb",c\nd\n\xff,e\nf,g,h\ni,\n'
    pairs = read_pairs(write("a.csv", raw), bad="skip")
    assert list(pairs) == [("a\nb", "c")]
    assert pairs.report.examples == [
        (4, "1 column instead of 2"),
        (5, "the row is not UTF-8: choose data.encoding, such as cp949"),
        (6, "3 columns instead of 2"),
        (7, "the target is empty"),
    ]


def test_text_is_read_with_a_tab_or_bars_or_another_delimiter(write):
    tatoeba = write("deu.txt", "Go.\tGeh.\tCC-BY\nHi!\tHallo!\tCC-BY\n")
    assert list(read_text(tatoeba)) == [("Go.", "Geh."), ("Hi!", "Hallo!")]
    assert list(read_text(write("a.txt", "a b ||| c\nd ||| e\n"))) == [("a b", "c"), ("d", "e")]
    assert list(read_text(write("b.txt", "a => b\n"), delimiter="=>")) == [("a", "b")]
    assert list(read_text(write("c.txt", "16+75_91\n"))) == [("16+75", "91")]


def test_columns_of_a_tsv_are_chosen_by_name(write):
    path = write("a.tsv", "id\ten\tde\n1\tone\teins\n")
    assert list(read_pairs(path, source="en", target="de")) == [("one", "eins")]


def test_nested_keys_are_read_by_a_dot(write):
    row = {"translation": {"en": "one", "de": "eins"}, "a.b": "literal"}
    path = write("a.jsonl", json.dumps(row))
    chosen = {"source": "translation.en", "target": "translation.de"}
    assert list(read_pairs(path, **chosen)) == [("one", "eins")]
    assert list(read_pairs(path, source="a.b", target="translation.de")) == [("literal", "eins")]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_numbers_of_every_format_are_texts(tmp_path, ending):
    import pandas as pd

    path = tmp_path / f"a.{ending}"
    table = pd.DataFrame({"source": [16, 7501], "target": [75.5, -0.25]})
    if ending == "parquet":
        table.to_parquet(path)
    elif ending == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_json(path, orient="records", lines=True)
    assert list(read_pairs(path)) == [("16", "75.5"), ("7501", "-0.25")]


@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "cp949"])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.jsonl", "a.txt", "a.dict", "aligned"])
def test_a_file_is_read_in_its_encoding(write, name, encoding, mark):
    rows = [("가나", "eins"), ("\u010a\u0a0d", "zwei")]  # bytes of line ends inside
    if encoding == "cp949":
        rows, mark = [("가나", "eins"), ("똠방각하", "zwei")], False
    content = {
        "a.tsv": "".join(f"{s}\t{t}\r\n" for s, t in rows),
        "a.csv.gz": "source,target\n" + "".join(f"{s},{t}\n" for s, t in rows),
        "a.jsonl": "".join(
            json.dumps({"source": s, "target": t}, ensure_ascii=False) + "\n" for s, t in rows
        ),
        "a.txt": "".join(f"{s} ||| {t}\n" for s, t in rows),
        "a.dict": "".join(f"{s}  {t}\n" for s, t in rows),
    }
    options = {} if mark else {"encoding": encoding}

    def encoded(text):
        return (("\ufeff" if mark else "") + text).encode(encoding)

    if name == "aligned":
        sides = ["".join(f"{text}\n" for text in side) for side in zip(*rows, strict=True)]
        files = [write(str(place), encoded(side)) for place, side in enumerate(sides)]
        assert list(read_aligned(*files, **options)) == rows
    else:
        assert list(read_pairs(write(name, encoded(content[name])), **options)) == rows


def test_a_wrong_or_unknown_encoding_is_one_sentence(write):
    korean = write("a.tsv", "가\tone\n나\ttwo\n".encode("cp949"))
    with pytest.raises(ValueError, match=r"the line is not UTF-8: choose data.encoding, such as"):
        read_pairs(korean)
    with pytest.raises(ValueError, match=r"data\.encoding = 'cp99' is not a known encoding"):
        read_pairs(korean, encoding="cp99")
    with pytest.raises(ValueError, match=r"data\.encoding = 'base64' is not a known encoding"):
        read_pairs(korean, encoding="base64")
    with pytest.raises(ValueError, match=r"b\.tsv, after line 0, is not utf-16"):
        read_pairs(write("b.tsv", codecs.BOM_UTF16_LE + b"a\0\t"))
    unmarked = write("b.tsv", "a\tb\nc\td\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"a null character: .* UTF-16 .*choose data\.encoding"):
        read_pairs(unmarked)
    with pytest.raises(ValueError, match=r"the format npz takes no data\.encoding"):
        read_pairs(write("a.npz", b""), encoding="cp949")


def test_parquet_and_saved_datasets_are_read_by_column(tmp_path):
    import datasets

    rows = [{"translation": {"en": s, "de": t}, "note": [7]} for s, t in EXPECTED]
    dataset = datasets.Dataset.from_list(rows)
    dataset.to_parquet(tmp_path / "a.parquet")
    dataset.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict(train=dataset, test=dataset).save_to_disk(tmp_path / "splits")
    chosen = {"source": "translation.en", "target": "translation.de"}
    for name in ("a.parquet", "saved", "splits/train"):
        assert list(read_pairs(tmp_path / name, **chosen)) == EXPECTED
    with pytest.raises(ValueError, match=r"several splits \(test, train\): give .*splits/test"):
        read_pairs(tmp_path / "splits")
    for name in ("a.parquet", "saved"):
        with pytest.raises(ValueError, match=r"no column 'en'.*choose with data.source= and data"):
            read_pairs(tmp_path / name, source="en", target="note")
        with pytest.raises(
            ValueError, match=r"all rows are bad.*no text under 'note' \(rows 1, 2, 3"
        ):
            read_pairs(tmp_path / name, source="translation.en", target="note")
    raw = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match="damaged or not a Parquet file"):
        read_pairs(tmp_path / "a.parquet")
    (tmp_path / "saved" / "state.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged or not from save_to_disk"):
        read_pairs(tmp_path / "saved")


def test_an_exploding_parquet_file_is_refused(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from regard.data import files

    monkeypatch.setattr(files, "SMALL", 4096)
    pq.write_table(pa.table({"source": ["a" * 999] * 9999, "target": ["b"] * 9999}), tmp_path / "a")
    with pytest.raises(ValueError, match="more than 100 times its size"):
        read_pairs(tmp_path / "a", format="parquet")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "en,de\na,b\n", "no column 'source'; known: en, de; choose with data.source="),
        ("a.csv", 'source,target\n"a"b,c\n', r'is not CSV.*data.delimiter.*data.format="tsv"'),
        (
            "a.tsv",
            "a,b\n" * 7,
            r"1 column instead of 2 \(lines 1, 2, 3, and 4 more\); .*data.format",
        ),
        (
            "a.jsonl",
            '{"en": "a", "de": "b"}\n' * 5,
            r"no text under 'source' \(lines 1, 2, 3, and 2 more\); choose data.source= and "
            r"data.target=, or data.format; the first object has en, de",
        ),
        ("a.txt", "just words\n" * 4, r"no '_' anywhere \(lines .*data.delimiter or data.format"),
        ("a.tsv", "a\tb\nc\n", 'skip them with data.bad="skip"'),
        ("a.xyz", "a\tb\n", "unknown format 'xyz'.*choose with data.format="),
    ],
)
def test_an_error_names_the_setting_that_fixes_it(write, name, text, words):
    with pytest.raises(ValueError, match=words):
        read_pairs(write(name, text))


def test_an_option_that_a_format_does_not_take_is_named(write):
    with pytest.raises(ValueError, match=r"the format jsonl takes no data\.delimiter"):
        read_pairs(write("a.jsonl", "{}"), delimiter=";")
    with pytest.raises(ValueError, match=r"data\.source of the format jsonl must be a name, got 0"):
        read_pairs(write("a.jsonl", "{}"), source=0)
