"""Ctrl-C at any moment ends a command with status 130, without a traceback."""

import signal
import subprocess
import sys
import time

import pytest

COMMAND = """
import sys
from regard.cli import main
print("ready", flush=True)
sys.exit(main())
"""


@pytest.mark.slow
def test_ctrl_c_in_the_first_seconds_is_neither_lost_nor_a_traceback(tmp_path, attempts):
    for number, rng in enumerate(attempts(8)):
        command = [sys.executable, "-c", COMMAND, "train", "dates", "--out", str(number)]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "ready\n"
            wait = rng.uniform(0, 4)
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, (wait, errors)
        assert "Traceback" not in errors, (wait, errors)
