"""`regard serve` prints its address, answers, and logs nothing but JSON."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.loopback import Client

NOT_HTTP = b"\x00\x01 nothing\r\n\r\n"
UPGRADE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"


@pytest.mark.parametrize("options", [[], ["--host", "0.0.0.0"]])
def test_a_server_answers_and_its_log_is_json(copy_run: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "regard", "serve", str(copy_run), "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        found = re.fullmatch(r"http://[\d.]+:(\d+)\n", process.stdout.readline())
        assert found
        client, token, headers = Client(int(found[1])), "none", {}
        if options:
            token = process.stdout.readline().removeprefix("token: ").strip()
            headers = {"Authorization": f"Bearer {token}"}
            assert client("POST", "/v1/translate", {"texts": ["a b"]}).status == 401
        answer = client("POST", "/v1/translate", {"texts": ["a b"], "beam": 1}, headers)
        assert answer.status == 200
        for sent in (NOT_HTTP, UPGRADE):  # of both uvicorn has something to say
            with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
                connection.sendall(sent)
                assert connection.recv(100)
        process.terminate()
        _, errors = process.communicate(timeout=30)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["logger"] for line in lines} == {"regard.serving", "uvicorn.error"}
    assert lines[0]["event"] == "serving"
    assert lines[0]["task"] == "translate"
    assert [line["status"] for line in lines if line.get("path") == "/v1/translate"][-1] == 200
    assert token not in errors
    assert "a b" not in errors
