"""Documents with a class, from every kind of file, and what can go wrong."""

import zipfile
from collections import Counter

import pytest

from regard.data import train_tokenizer
from regard.data.labelled import Labelled, generate_documents, read_documents
from regard.data.sentences import collate_documents, document_pieces, encode_document, sentences


def test_quotes_of_a_tsv_are_text_and_those_of_a_csv_are_not(tmp_path):
    (tmp_path / "a.csv").write_text('id,text,label\n1,"good, really\nso",pos\n2,bad,neg\n')
    assert read_documents(tmp_path / "a.csv").inputs == ["good, really\nso", "bad"]
    (tmp_path / "a.tsv").write_text('id\tdocument\tlabel\n1\t"재미\t1\n2\t별로\t0\n')
    assert read_documents(tmp_path / "a.tsv", text="document").inputs == ['"재미', "별로"]
    other = tmp_path / "a.data"
    other.write_text("text;label\ngood, really;1\nbad;0\n")
    for given in ({"format": "csv"}, {"format": "tsv", "delimiter": ";"}):
        assert read_documents(other, **given).inputs == ["good, really", "bad"]


def test_classes_of_a_saved_dataset_have_their_names_and_those_of_parquet_their_numbers(tmp_path):
    import datasets

    classes = datasets.ClassLabel(names=["neg", "pos"])
    dataset = datasets.Dataset.from_dict({"review": ["good", "bad"], "stars": [1, 0]})
    dataset = dataset.cast_column("stars", classes)
    dataset.to_parquet(tmp_path / "a.parquet")
    dataset.save_to_disk(tmp_path / "saved")
    for file, names in (("a.parquet", ["0", "1"]), ("saved", ["neg", "pos"])):
        found = read_documents(tmp_path / file, text="review", label="stars")
        assert (found.inputs, found.labels, found.classes) == (["good", "bad"], [1, 0], names)


def test_a_zip_of_folders_has_classes_and_folds(tmp_path):
    path = tmp_path / "reviews.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("reviews/neg/cv123_1.txt", "dull\n")
        archive.writestr("reviews/pos/cv900_7.txt", "caf\xe9\n".encode("latin-1"))
    found = read_documents(path)
    assert found == Labelled(["dull\n", "café\n"], [0, 1], ["neg", "pos"], [1, 9])


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.csv", "txt,label\nfine,pos\n", "no column 'text'; did you mean 'txt'"),
        ("a.csv", "text,label\nfine,pos\nbad\n", r"line 3 \(1 column instead of 2\)"),
        ("a.csv", "text,label\nfine,pos\n ,neg\n", r"line 3 \(the text is empty\)"),
        ("a.tsv", "text\tlabel\nfine\tpos\ngood\tpos\n", "all 2 examples are of class 'pos'"),
        ("a.csv", "text,label\n", r"a\.csv has nothing but column names"),
        ("a.jsonl", '{"text": "a", "label": "b"}\nno\n', r"line 2 \(not JSON\)"),
        ("a.jsonl", '{"text": [3], "label": "b"}\n', "no text under 'text'"),
        ("a.txt", "fine\n", "unknown format 'txt'.*csv, tsv.*choose with data.format="),
        ("a.zip", "no zip", "is not a zip file"),
    ],
)
def test_a_malformed_file_is_one_sentence(tmp_path, name, content, complaint):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=complaint):
        read_documents(path)


def test_bad_rows_are_left_out_if_asked(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nfine,pos\n,neg\nbad,neg\n")
    assert read_documents(path, bad="skip").inputs == ["fine", "bad"]
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_documents(tmp_path / "b.csv")


def test_words_of_generated_documents_do_not_tell_the_class():
    found = generate_documents(400, seed=5)
    for polar in ("wonderful", "awful"):
        with_it = Counter(
            label for text, label in zip(found.inputs, found.labels, strict=True) if polar in text
        )
        assert abs(with_it[0] - with_it[1]) < 0.35 * with_it.total()
    assert found == generate_documents(400, seed=5)


def test_pieces_stand_for_the_ids_one_by_one():
    text = "It's a rare film! 정말 좋다. " + "word " * 30
    for kind in ("words", "bpe", "characters"):
        tokenizer = train_tokenizer(kind, ["a film 좋다 it's"], size=270 if kind == "bpe" else None)
        limits = {"max_words": 7, "max_sentences": 5}
        ids = encode_document(text, tokenizer, **limits)
        pieces = document_pieces(text, tokenizer, **limits)
        assert [len(part) for part in pieces] == ids.lengths.tolist()
        assert len(pieces) == 5


def test_sentences_end_where_a_reader_would_end_them():
    assert sentences("Good. 3.5 stars!  Go") == ["Good.", "3.5 stars!", "Go"]
    assert sentences("one . two\nthree . ") == ["one . two", "three ."]
    assert sentences("  ") == []
    quoted = 'He said "Go!" (or so?) Then left... 네'
    assert sentences(quoted) == ['He said "Go!"', "(or so?)", "Then left...", "네"]
    tokenizer = train_tokenizer("words", ["a"])
    assert encode_document("", tokenizer).sentences() == [[tokenizer.unk]]


def test_a_batch_pads_words_and_sentences():
    tokenizer = train_tokenizer("characters", ["abc"])
    one, two = (encode_document(text, tokenizer) for text in ("abc\nb", "c"))
    batch = collate_documents([one, two], [1, 0])
    assert batch.words.tolist() == [[[4, 5, 6], [5, 0, 0]], [[6, 0, 0], [0, 0, 0]]]
    assert batch.word_lengths.tolist() == [[3, 1], [1, 0]]
    assert (batch.sentence_lengths.tolist(), batch.labels.tolist()) == ([2, 1], [1, 0])


def test_a_very_long_document_of_a_csv_is_read(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(f"text,label\n{'word ' * 30_000},a\nshort,b\n")
    assert [len(text) for text in read_documents(path).inputs] == [150_000, 5]
