"""`torchrun -m regard train`: a killed worker comes back, and two machines train one model."""

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
AGENT = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "test"]


def torchrun(tmp_path, run, *options, inside=(), **environment):
    """Start torchrun, by a command that runs it elsewhere if one is given."""
    (tmp_path / "copy.toml").write_text(CONFIG)
    source = Path(__file__).parents[2] / "src"
    launch = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "regard", "train"]
    own = [str(tmp_path / "copy.toml"), "--out", str(run), "--set", "training.steps=40"]
    return subprocess.Popen(
        [*inside, *launch, *own],
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers(process):
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights that two processes train."""
    folder = tmp_path_factory.mktemp("undisturbed")
    process = torchrun(folder, folder / "run", "--nproc-per-node", "2")
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert output.count("finished by training.steps after 40 steps") == 1  # one process reports
    return (folder / "run" / "model.safetensors").read_bytes()


@pytest.fixture
def machines():
    """Two network namespaces and a cable: the command that runs in each, its interface, address."""
    names = [f"regard-{os.getpid()}-{number}" for number in range(2)]
    ends = [(f"rg{os.getpid()}-{n}", f"10.77.0.{n + 1}") for n in range(2)]
    commands = [["netns", "add", name] for name in names]
    commands.append(["link", "add", ends[0][0], "type", "veth", "peer", "name", ends[1][0]])
    for name, (interface, address) in zip(names, ends, strict=True):
        commands.append(["link", "set", interface, "netns", name])
        commands.append(["-n", name, "addr", "add", f"{address}/24", "dev", interface])
        commands += [["-n", name, "link", "set", device, "up"] for device in ("lo", interface)]
    try:
        for command in commands:
            try:
                subprocess.run(["ip", *command], check=True, capture_output=True, text=True)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"network namespaces need root and iproute2: {error}")
        inside = [["ip", "netns", "exec", name] for name in names]
        yield [(one, *end) for one, end in zip(inside, ends, strict=True)]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_a_worker_killed_at_any_step_comes_back_and_ends_with_the_same_bytes(tmp_path, undisturbed):
    run = tmp_path / "run"
    process = torchrun(tmp_path, run, "--nproc-per-node", "2", "--max-restarts", "3")
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and len(read_metrics(metrics)) > 7):
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(workers(process)[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "resuming after step" in errors
    assert (run / "model.safetensors").read_bytes() == undisturbed


def test_two_agents_meet_by_a_rendezvous_and_train_one_model(tmp_path, undisturbed):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [*AGENT, "--rdzv-endpoint", address, "--local-addr", "127.0.0.1"]
    join([torchrun(tmp_path, tmp_path / "run", *options) for _ in range(2)])
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == undisturbed


def test_two_machines_train_what_two_processes_of_one_train(tmp_path, undisturbed, machines):
    """Each is a network namespace: neither reaches the loopback of the other."""
    endpoint = ["--rdzv-endpoint", f"{machines[0][2]}:29500", "--rdzv-conf"]
    agents = []
    for number, (inside, interface, address) in enumerate(machines):
        options = [*AGENT, *endpoint, f"is_host={number == 0}", "--local-addr", address]
        more = {"inside": inside, "GLOO_SOCKET_IFNAME": interface}
        agents.append(torchrun(tmp_path, tmp_path / "run", *options, **more))
    join(agents)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == undisturbed


def join(agents):
    """Wait for agents that must succeed."""
    for agent in agents:
        _, errors = agent.communicate(timeout=200)
        assert agent.returncode == 0, errors
