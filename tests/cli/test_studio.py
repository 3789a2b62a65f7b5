"""`regard studio` prints its address, answers, and ends by an interrupt."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from regard.cli import main
from regard.samples import sample_runs


@pytest.mark.parametrize(
    ("options", "has_token"),
    [
        ([], True),
        (["--host", "0.0.0.0"], True),
        (["--token", "mine"], True),
        (["--no-token"], False),
    ],
)
def test_the_address_that_is_printed_answers(
    tmp_path: Path, options: list[str], has_token: bool
) -> None:
    command = [sys.executable, "-m", "regard", "studio", "--port", "0", "--no-open", *options]
    command += ["--out", str(tmp_path / "runs")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[\d.]+:(\d+)/(?:#token=(\S+))?", line)
        assert found, line
        assert bool(found[2]) == has_token
        request = urllib.request.Request(f"http://127.0.0.1:{found[1]}/api/v1/runs")
        if has_token:
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request)
            request.add_header("Authorization", f"Bearer {found[2]}")
        with urllib.request.urlopen(request) as answer:
            names = [run["name"] for run in json.load(answer)["runs"]]
            assert names == [run.name for run in sample_runs()]
            assert "set-cookie" not in answer.headers
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as connection:
            connection.sendall(b"nothing\r\n\r\n")
            assert connection.recv(100)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    *log, last = errors.splitlines()
    assert [json.loads(line)["logger"] for line in log] == ["uvicorn.error"]
    assert last == "regard: interrupted"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--no-token", "--host", "0.0.0.0"], "a token is needed"),
        (["--no-token", "--token", "mine"], "contradicts --no-token"),
        (["--token", ""], "should not be empty"),
    ],
)
def test_a_studio_that_others_can_reach_has_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["studio", "--out", str(tmp_path), "--port", "0", "--no-open", *options]) != 0
    assert words in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["studio", str(tmp_path / "nothing")]) == 1
    assert "nothing is not a directory" in capsys.readouterr().err
