"""The inputs of a command line: what is a file, what is a text, what is JSON."""

import io
import sys

import pytest

from regard.cli.inputs import Record, in_batches, read_records


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_bytes("\ufeffone\r\n\ntwo".encode())
    (tmp_path / "pairs.tsv").write_text("a\tb\tlabel\nc\td\tlabel\n")
    (tmp_path / "objects.jsonl").write_text('{"text": "one"}\n\n{"text": "두"}\n')
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    return tmp_path


def given(*arguments, task="translate", **options):
    return [record.content for record in read_records(arguments, task, **options)]


def test_an_argument_that_names_a_file_is_the_file(files):
    assert given("lines.txt") == ["one", "", "two"]
    assert given("lines.txt", "three") == ["one", "", "two", "three"]
    assert given("lines.txt", text=True) == ["lines.txt"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_a_byte_order_mark_chooses_the_encoding(files, encoding, monkeypatch):
    raw = "하나\r\n둘\n".encode(encoding)
    (files / "marked.txt").write_bytes(raw)
    assert given("marked.txt") == ["하나", "둘"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert given("-") == ["하나", "둘"]


def test_json_lines_are_objects_and_blank_ones_are_left_out(files):
    assert given("objects.jsonl") == [{"text": "one"}, {"text": "두"}]
    assert given("lines.txt", "objects.jsonl")[3:] == [{"text": "one"}, {"text": "두"}]
    with pytest.raises(ValueError, match=r"line 1 of lines\.txt is not JSON"):
        given("lines.txt", jsonl=True)


def test_a_table_gives_one_column_or_two_for_a_pair(files):
    assert given("pairs.tsv") == ["a", "c"]
    assert given("pairs.tsv", task="pair") == ["a\tb", "c\td"]


def test_two_texts_are_one_pair(files):
    assert given("left", "right", task="pair") == ["left\tright"]
    assert given("left", "right") == ["left", "right"]
    assert given("pairs.tsv", "pairs.tsv", task="pair") == ["a\tb", "c\td"] * 2


def test_an_image_is_read_by_its_task(files):
    assert given("a.png", task="image") == ["a.png"]


def test_a_text_that_begins_with_a_brace_is_json_unless_it_is_said_to_be_text():
    assert given('{"user": 3}') == [{"user": 3}]
    assert given('{"user": 3}', text=True) == ['{"user": 3}']
    with pytest.raises(ValueError, match="input 1 is not JSON"):
        given("{oops")


def test_a_file_that_is_not_there_is_not_taken_for_a_text(files):
    with pytest.raises(FileNotFoundError, match=r"file line\.txt does not exist; --text reads it"):
        given("line.txt")
    assert given("I like line.txt", "a" * 9999) == ["I like line.txt", "a" * 9999]


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input_is_read_without_arguments_and_for_a_dash(arguments, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\nb\n")))
    records = list(read_records(arguments, "classify"))
    assert records == [
        Record("{}", "line 1 of standard input"),  # corpora are texts, whatever they look like
        Record("b", "line 2 of standard input"),
    ]


def test_what_comes_before_an_error_is_a_batch():
    def items():
        yield from (1, 2, 3)
        raise ValueError("bad")

    batches = in_batches(items(), 2)
    assert [next(batches), next(batches)] == [[1, 2], [3]]
    with pytest.raises(ValueError, match="bad"):
        next(batches)
