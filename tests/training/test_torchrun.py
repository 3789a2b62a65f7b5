"""`torchrun -m regard train`: a killed worker comes back, and two agents train one model."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.training.metrics import read_metrics

pytestmark = pytest.mark.slow
CONFIG = """
task = "translate"
data = { name = "copy", count = 200, valid_count = 7, tokens = 400 }
model = { kind = "luong", embedding = 8, hidden = 16, dropout = 0.2 }
training = { save_every = 5, log_every = 1, threads = 1, device = "cpu" }
"""


def torchrun(tmp_path, run, *options):
    (tmp_path / "copy.toml").write_text(CONFIG)
    source = Path(__file__).parents[2] / "src"
    launch = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "regard", "train"]
    own = [str(tmp_path / "copy.toml"), "--out", str(run), "--set", "training.steps=40"]
    return subprocess.Popen(
        [*launch, *own],
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers(process):
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def test_a_worker_killed_at_any_step_comes_back_and_ends_with_the_same_bytes(tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    undisturbed = torchrun(tmp_path, whole, "--nproc-per-node", "2")
    output, errors = undisturbed.communicate(timeout=200)
    assert undisturbed.returncode == 0, errors
    assert output.count("finished by training.steps after 40 steps") == 1  # one process reports
    process = torchrun(tmp_path, run, "--nproc-per-node", "2", "--max-restarts", "3")
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and len(read_metrics(metrics)) > 7):
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(workers(process)[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "resuming after step" in errors
    name = "model.safetensors"
    assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_two_agents_meet_by_a_rendezvous_and_train_one_model(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    options += ["--rdzv-endpoint", address, "--rdzv-id", "test", "--local-addr", "127.0.0.1"]
    agents = [torchrun(tmp_path, tmp_path / "run", *options) for _ in range(2)]
    for agent in agents:
        _, errors = agent.communicate(timeout=200)
        assert agent.returncode == 0, errors
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")][-1] == 40
