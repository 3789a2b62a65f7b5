"""What reaches the terminal, a pipe and a file: harmless, exact, and in any encoding."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.cli import main
from regard.cli.output import StatusLine, check_output, one_line, sanitize, write, write_json
from regard.trace import Trace

SOURCE = Path(__file__).parents[2] / "src"
COPY = "\x1b]52;c;ZXZpbA==\x07"  # puts text into the clipboard of a terminal that obeys it


def terminal_output(*arguments: str) -> bytes:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "regard", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    process.wait()
    return b"".join(parts)


def test_escapes_of_a_trace_do_not_reach_the_terminal(tmp_path):
    file = tmp_path / "a.attn"
    trace = Trace.of_maps({"cross": torch.eye(2)}, queries=[COPY, "b"], keys=["c", COPY])
    trace.about |= {"task": "translate", "translation": COPY, "title": COPY}
    trace.save(file)
    shown = terminal_output("see", str(file))
    assert b"cross" in shown
    assert b"\x1b]" not in shown
    assert b"\x07" not in shown


def test_escapes_in_an_error_do_not_reach_the_terminal():
    shown = terminal_output("see", f"no{COPY}run")
    assert b"is neither a run directory" in shown
    assert b"\x1b]" not in shown


def test_text_is_exact_in_a_pipe_and_harmless_on_a_terminal(monkeypatch, capsys):
    write(f"a\tb{COPY}")
    assert capsys.readouterr().out == f"a\tb{COPY}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write(f"a\tb{COPY}\x9b2J")
    assert capsys.readouterr().out == "a\tb␛]52;c;ZXZpbA==␇\ufffd2J\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_whole_in_every_encoding(encoding, monkeypatch):
    value = {"text": "é 고양이 👩‍💻 \x9b \x1b \ud800"}
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", stream)
    write_json(value)
    stream.flush()
    written = stream.buffer.getvalue()
    assert json.loads(written.decode(encoding)) == value


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_narrow_encoding_stops_neither_see_nor_json(encoding, tmp_path):
    file = tmp_path / "a.attn"
    Trace.of_maps({"cross": torch.eye(2)}, queries=["고양이", "é"], keys=["c", "–"]).save(file)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": encoding}
    for arguments in (["see", str(file)], ["data", "list", "--json"]):
        command = [sys.executable, "-m", "regard", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    json.loads(done.stdout.decode(encoding))


def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file, not a directory"):
        check_output(tmp_path / "file" / "run")
    with pytest.raises(ValueError, match="is not UTF-8"):
        check_output(Path("run\udcff"))
    with pytest.raises(FileNotFoundError, match=r"directory .* does not exist"):
        check_output(tmp_path / "no" / "a.json", new_folders=False)
    check_output(tmp_path / "new" / "run")
    for status, out in ((1, tmp_path / "file" / "run"), (2, tmp_path / "run\udcff")):
        assert main(["train", "dates", "--out", str(out)]) == status
        assert "step" not in capsys.readouterr().err


def test_more_threads_than_a_machine_can_have_are_refused(capsys):
    assert main(["train", "copy", "--dry-run", "--set", "training.threads=100000"]) == 2
    assert "training.threads should be less than or equal to 1024" in capsys.readouterr().err


def test_a_beam_that_needs_too_much_memory_is_refused(copy_run, capsys):
    for status, command in ((2, "translate"), (1, "see"), (2, "evaluate")):
        run = [str(copy_run), *(["abc"] if command != "evaluate" else [])]
        assert main([command, *run, "--beam", "100000"]) == status
        assert "beam should be less than or equal to 1024" in capsys.readouterr().err


def test_one_line_is_one_short_line_without_escapes():
    assert one_line(f" two\nlines{COPY}") == "two lines␛]52;c;ZXZpbA==␇"
    assert len(one_line("word " * 10**6)) <= 2001
    assert sanitize("a\tb\nc") == "a\tb\nc"


def test_a_status_line_is_shown_at_the_end_and_not_too_often(capsys):
    status = StatusLine()
    for number in range(100):
        status.show(f"{number}")
    status.show("done", done=True)
    assert capsys.readouterr().err == "done\n"
