"""`regard translate` as people use it: lines in, lines out, in order, whatever the lines are."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import regard
from regard.cli import main
from regard.cli.app import app
from regard.tasks.search import SearchOptions


@pytest.fixture
def run(copy_run):
    return copy_run


@pytest.fixture
def translate(run, monkeypatch, capsys):
    """Translate bytes; gives status, standard output and standard error."""

    def translated(given: bytes, *options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        status = main(["translate", str(run), *options])
        return (status, *capsys.readouterr())

    return translated


def test_lines_stay_in_order_and_buffers_change_nothing(run, translate):
    texts = ["abc", "", "a", "hello you", "", "xyz" * 9]
    expected = [one.text for one in regard.load(run).translate(texts, beam=5)]
    given = "\n".join(texts).encode()  # the last line has no end
    for options in ([], ["--buffer", "1"], ["--buffer", "4"]):
        status, out, error = translate(given, *options)
        assert status == 0
        assert out.split("\n") == [*expected, ""]
        assert "6 lines" in error
    assert expected[1] == expected[4] == ""


def test_no_input_gives_no_output(translate):
    assert translate(b"")[:2] == (0, "")


def test_a_blank_line_becomes_an_empty_one(translate):
    assert translate(b" \n\t\r\n\xe3\x80\x80\n")[:2] == (0, "\n\n\n")


def test_an_input_of_letters_that_never_occurred_is_noted_once(translate):
    status, out, error = translate("abc\nשלום עולם\n안녕하세요\n".encode())
    assert (status, len(out.splitlines())) == (0, 3)
    note = "note: most of line 2 of standard input did not occur in training (<unk>)"
    assert error.startswith(note)
    assert error.count("<unk>") == 1


def test_windows_lines_and_a_byte_order_mark_are_read_like_others(translate):
    plain = translate(b"abc\nde\n")[1]
    assert translate("\ufeffabc\r\nde\r\n".encode())[1] == plain


def test_several_translations_have_number_and_score(run, translate):
    status, out, _ = translate(b"abc\nde\n", "--beam", "3", "--n-best", "2")
    rows = [line.split("\t") for line in out.splitlines()]
    assert status == 0
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    (best, second), _ = regard.load(run).translate(["abc", "de"], beam=3, n_best=2)
    assert [row[2] for row in rows[:2]] == [best.text, second.text]
    ranking = best.score / ((5 + len(best.tokens)) / 6) ** 0.6  # Wu et al. 2016, eq. 14
    assert float(rows[0][1]) == pytest.approx(ranking, abs=1e-3)
    assert float(rows[0][1]) >= float(rows[1][1])  # in the order shown


def test_json_has_all_of_it(run, translate):
    _, out, _ = translate("abc\n한글\n".encode(), "--json", "--beam", "2", "--n-best", "2")
    first, second = map(json.loads, out.splitlines())
    assert (first["input"], second["input"]) == ("abc", "한글")
    assert len(first["prediction"]) == 2
    assert {"text", "score", "tokens", "ranking"} == set(first["prediction"][0])


def test_scores_come_before_the_text(translate):
    _, out, _ = translate(b"abc\n", "--scores", "--beam", "1")
    score, text = out.rstrip("\n").split("\t")
    assert float(score) < 0
    assert text == translate(b"abc\n", "--beam", "1")[1].rstrip("\n")


def test_draws_depend_on_the_line_and_the_seed_not_on_the_buffer(translate):
    given = b"abcdef\n" * 5
    options = ["--sample", "--seed", "3"]
    one = translate(given, *options)[1]
    assert one == translate(given, *options, "--buffer", "2")[1]
    assert one != translate(given, "--sample", "--seed", "4")[1]
    assert len(set(one.splitlines())) > 1
    assert len(translate(given, *options, "--n-best", "3")[1].splitlines()) == 15


def test_mbr_writes_one_of_its_samples_for_each_line(translate):
    options = ["--seed", "3", "--temperature", "2"]
    drawn = translate(b"abcdef\nhello\n", "--sample", "--n-best", "5", *options)[1]
    written = translate(b"abcdef\nhello\n", "--mbr", "5", *options)[1].splitlines()
    samples = [line.split("\t") for line in drawn.splitlines()]
    for number, text in enumerate(written, 1):
        assert text in [own for line, _, own in samples if line == str(number)]
    assert len(written) == 2


def test_a_prefix_begins_every_translation(translate):
    _, out, _ = translate(b"abc\nxyz\nq\n", "--prefix", "he", "--buffer", "2")
    assert all(line.startswith("he") for line in out.splitlines())


def test_a_trace_holds_the_maps_of_the_first_lines(run, translate, tmp_path):
    file = tmp_path / "out.attn"
    status, out, _ = translate(b"abc\n\nhello\n" * 9, "--trace", str(file), "--buffer", "5")
    assert status == 0
    assert out == translate(b"abc\n\nhello\n" * 9)[1]
    trace = regard.load_trace(file)
    (best,) = regard.load(run).translate(["hello"], beam=5, return_map=True)
    own = trace.of(1)  # the empty line has no map
    assert own.tokens["source"] == list("hello")
    assert own.tokens["target"] == best.tokens
    assert (own.calls[0].map.dense()[0] - best.map).abs().max() < 1e-5


def test_a_very_long_line_is_refused_with_its_number(translate):
    status, out, error = translate(b"abc\n" + b"a" * 10_000 + b"\n", "--buffer", "1")
    assert status == 1
    assert out.count("\n") == 1  # what came before it was written
    assert "line 2 of standard input has 10,000 tokens, more than --longest 2,048" in error


def test_a_very_long_text_in_json_is_refused_too(translate):
    status, _, error = translate(b'{"source": "%s"}\n' % (b"a" * 10_000), "--jsonl")
    assert status == 1
    assert "line 1 of standard input has 10,000 tokens" in error


def test_a_long_line_is_translated_if_that_is_asked_for(translate):
    status, out, _ = translate(b"a" * 2_500 + b"\n", "--longest", "3000", "--beam", "1")
    assert status == 0
    assert out.count("\n") == 1


@pytest.mark.parametrize("options", [(), ("--buffer", "1"), ("--buffer", "2")])
def test_a_line_that_is_refused_is_so_after_those_before_it_are_written(translate, options):
    before = translate(b"abc\n\nxyz\n")[1]
    for bad, complaint in (
        (b"d\xffe", "line 4 of standard input is not UTF-8"),
        (b"a" * 10_000, "line 4 of standard input has 10,000 tokens"),
    ):
        status, out, error = translate(b"abc\n\nxyz\n" + bad + b"\nabc\n", *options)
        assert (status, out) == (1, before)
        assert complaint in error


def test_what_is_not_utf8_is_refused_with_its_number(run):
    command, options = _process(run)
    done = subprocess.run(command, input=b"abc\nde\nd\xffe\nabc\n", check=False, **options)
    error = done.stderr.decode()
    assert done.returncode == 1
    assert done.stdout.count(b"\n") == 2
    assert "line 3 of standard input is not UTF-8" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("options", "status", "complaint"),
    [
        (["--beam", "0"], 2, "beam should be greater than or equal to 1, got 0"),
        (["--n-best", "7", "--beam", "2"], 2, "n_best 7 needs a beam of 7"),
        (["--top-k", "3"], 2, "are for samples: add --sample"),
        (["--sample", "--penalty", "1"], 2, "are for searching, not for samples"),
        (["--mbr", "5", "--beam", "3"], 2, "are for searching, not for samples"),
        (["--mbr", "5", "--sample"], 2, "--mbr samples by itself"),
        (["--mbr", "1"], 2, "mbr should be greater than or equal to 2, got 1"),
        (["--length", "3"], 2, "--length is not an option of the task translate"),
        (["--sample", "--temperature", "0"], 2, "temperature should be greater than 0"),
        (["--trace", "no/such/place.attn"], 1, "does not exist"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(translate, options, status, complaint):
    found, out, error = translate(b"abc\n", *options)
    assert (found, out) == (status, "")
    assert complaint in error


@pytest.mark.parametrize("command", ["translate", "evaluate", "see"])
def test_defaults_in_the_help_are_those_of_the_options(command):
    """The help is written before pydantic is loaded; the server and the studio have the fields."""
    from regard.serving.schemas import TranslateRequest
    from regard.studio.messages import Look

    fields = SearchOptions.model_fields
    for param in typer.main.get_command(app).commands[command].params:
        stated = re.search(r"\[default: ([\d.]+)\]", param.help or "")
        if param.name in fields and param.name != "n_best" and fields[param.name].default:
            assert float(stated[1]) == fields[param.name].default
    assert Look.model_fields["beam"].default == fields["beam"].default == 5
    for name in ("beam", "n_best", "penalty"):
        assert TranslateRequest.model_fields[name].default == fields[name].default


def test_python_and_the_command_line_translate_alike(run, translate):
    texts = ["abc", "hello you", "xyz"]
    expected = [one.text for one in regard.load(run).translate(texts)]
    assert translate("\n".join(texts).encode())[1].splitlines() == expected
    assert regard.load(run).trace("abc").about["translation"] == expected[0]


def test_a_reader_that_has_seen_enough_ends_it_quietly(run, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_bytes(b"abcdef\n" * 20_000)
    command, pipes = _process(run, "--buffer", "1")
    with file.open("rb") as given, subprocess.Popen(command, stdin=given, **pipes) as process:
        assert process.stdout.readline()  # it answers before the input ends
        process.stdout.close()
        error = process.stderr.read().decode()
    assert process.returncode == 1
    assert "Traceback" not in error
    assert "Exception" not in error


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main(["translate", str(tmp_path)]) == 1
    assert "config.toml" in capsys.readouterr().err


def _process(run, *options):
    """A process that translates: its command, and how to start it."""
    command = [sys.executable, "-m", "regard", "translate", str(run), *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1])}
    return command, {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
