"""The code of docs/serving.md runs as it stands, against a real server."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

DOCS = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    return [code for name, code in found if name == language]


def test_what_a_request_can_reach_is_told_of_every_endpoint(serve, translator, tmp_path):
    from regard.studio.app import Studio, endpoints

    section = DOCS.partition("### What a request can reach\n")[2].partition("\n#")[0]
    described = serve(translator).get("/openapi.json").json()["paths"]
    paths = [*described, *(one.path for one in endpoints(Studio([], tmp_path)))]
    assert len(paths) > 15
    assert [path for path in paths if f"{path}`" not in section] == []


@pytest.fixture
def address(serve, translator):
    return f"{serve(translator).base_url}/"


def test_the_python_code_runs(address, capsys):
    assert len(blocks("python")) == 4
    for code in blocks("python"):
        exec(code.replace("http://localhost:8000/", address), {})
    printed = capsys.readouterr().out
    assert "event: translation" in printed
    assert "healthz 200" in printed
    assert "openapi.json 200" in printed


def test_the_curl_lines_run(address):
    lines = [
        line
        for block in blocks("")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("curl")
    ]
    assert len(lines) == 7
    for line in lines:
        command = shlex.split(line.replace("localhost:8000/", address))
        done = subprocess.run([*command, "-f"], capture_output=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout
