"""`regard studio` prints its address, answers, and ends by an interrupt."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from regard.cli import main


@pytest.mark.parametrize("options", [[], ["--host", "0.0.0.0"]])
def test_the_address_that_is_printed_answers(tmp_path: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "regard", "studio", "--port", "0", "--no-open", *options]
    command += ["--out", str(tmp_path / "runs")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[\d.]+:(\d+)/(?:#token=(\S+))?", line)
        assert found, line
        request = urllib.request.Request(f"http://127.0.0.1:{found[1]}/api/v1/runs")
        if options:
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request)
            request.add_header("Authorization", f"Bearer {found[2]}")
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer) == {"runs": []}
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_folder_that_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["studio", str(tmp_path / "nothing")]) == 1
    assert "nothing is not a directory" in capsys.readouterr().err
