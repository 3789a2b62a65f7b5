"""`regard predict --out`: every line once and in order, whatever happens to the processes."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.cli import main
from regard.system.files import UNFINISHED


@pytest.fixture
def shards(tmp_path):
    """Three files of sources, two of them compressed."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        lines = [json.dumps({"source": f"{day} may 20{number}1"}) for day in range(1, 5 + number)]
        text = "\n".join(lines) + "\n"
        if number:
            (folder / f"{number}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / "0.jsonl").write_text(text)
    return folder


def sources(file):
    return [json.loads(line)["input"]["source"] for line in file.read_text().splitlines()]


def rounded(text):
    """JSON lines whose scores may differ in their last digits, as batches differ."""
    lines = text.splitlines()
    return [json.loads(line, parse_float=lambda number: round(float(number), 3)) for line in lines]


def test_each_file_is_predicted_line_by_line(tiny_run, shards, tmp_path, capsys):
    run, out = str(tiny_run("translate")), tmp_path / "out"
    pattern = str(shards / "*.jsonl*")
    assert main(["predict", run, pattern, "--out", str(out), "--json", "--beam", "1"]) == 0
    assert sorted(file.name for file in out.iterdir()) == ["0.jsonl", "1.jsonl", "2.jsonl"]
    for number in range(3):
        days = [f"{day} may 20{number}1" for day in range(1, 5 + number)]
        assert sources(out / f"{number}.jsonl") == days
    capsys.readouterr()
    assert main(["predict", run, str(shards / "1.jsonl.gz"), "--json", "--beam", "1"]) == 0
    assert rounded(capsys.readouterr().out) == rounded((out / "1.jsonl").read_text())


def test_processes_share_the_files_and_finished_ones_stay(
    tiny_run, shards, tmp_path, capsys, monkeypatch
):
    run, out = str(tiny_run("translate")), tmp_path / "out"
    out.mkdir()
    (out / "2.txt").write_text("finished before\n")
    (out / ".unfinished-123-0.txt").write_text("of a killed process")
    command = ["predict", run, str(shards / "*"), "--out", str(out), "--beam", "1"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert main(command) == 0
    assert sorted(path.name for path in out.glob("[0-9]*")) == ["1.txt", "2.txt"]
    monkeypatch.setenv("RANK", "0")
    assert main(command) == 0
    assert "rank 0: 1 files in" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["0.txt", "1.txt", "2.txt"]
    assert (out / "2.txt").read_text() == "finished before\n"
    assert len((out / "1.txt").read_text().splitlines()) == 5


@pytest.mark.slow
def test_a_shard_of_a_killed_process_is_done_again_and_finished_ones_are_not(
    tiny_run, tmp_path, capsys
):
    """Two processes of torchrun, which starts them again after one was killed."""
    out, days = tmp_path / "out", [f"{day % 28 + 1} may 20{day % 90 + 10}" for day in range(500)]
    for number in range(8):
        text = "\n".join(json.dumps({"source": f"{day}{number}"}) for day in days)
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    command = ["predict", str(tiny_run("translate")), str(tmp_path / "*.gz"), "--out", str(out)]
    command += ["--json", "--beam", "1", "--buffer", "100"]
    launch = ["torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    source = Path(__file__).parents[2] / "src"
    process = subprocess.Popen(
        [sys.executable, "-m", *launch, "-m", "regard", *command],
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (list(out.glob("[0-9]*")) and (parts := list(out.glob(f"{UNFINISHED}*")))):
        assert process.poll() is None
        time.sleep(0.005)
    pid, victim = parts[0].name.removeprefix(UNFINISHED).split("-")
    os.kill(int(pid), signal.SIGKILL)
    finished = {path: path.stat() for path in out.glob("[0-9]*")}
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert 0 < len(finished) < 8
    assert all(path.stat().st_ino == before.st_ino for path, before in finished.items())
    assert sorted(path.name for path in out.iterdir()) == [f"{n}.jsonl" for n in range(8)]
    for number in range(8):
        assert sources(out / f"{number}.jsonl") == [f"{day}{number}" for day in days]
    capsys.readouterr()
    command[2:5] = [str(tmp_path / f"{victim}.gz")]
    assert main(command) == 0
    assert rounded(capsys.readouterr().out) == rounded((out / victim).read_text())


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["{shards}/none*"], "no file matches"),
        (["{shards}/0.jsonl", "{shards}/0.jsonl"], "two files would be written"),
        ([], "--out needs files"),
    ],
)
def test_wrong_files_are_refused(tiny_run, shards, tmp_path, capsys, inputs, message):
    inputs = [text.format(shards=shards) for text in inputs]
    out = tmp_path / "out"
    assert main(["predict", str(tiny_run("translate")), *inputs, "--out", str(out)]) != 0
    assert message in capsys.readouterr().err
    assert not out.exists()
