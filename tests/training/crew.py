"""Forks processes that train together, for every line on standard input; see `Crew` below.

They join as under torchrun, by environment variables, and load nothing again.
"""

import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


class Crew:
    """A process that has loaded everything and forks the processes of every run."""

    def __init__(self):
        source = HERE.parents[1] / "src"
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
            text=True,
        )

    def train(self, run, values, world, **faults):
        """Train with so many processes; the answer of each, or minus the signal that ended it."""
        request = {"run": str(run), "values": values, "world": world, **faults}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def main():
    import torch
    from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: F401  loaded once

    import regard.training.shards  # noqa: F401
    from regard.tasks import TASKS  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(answers(json.loads(line))), flush=True)


def answers(request):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    there = [r for r in range(request["world"]) if r not in request.get("absent", [])]
    children = {}
    for rank in there:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            os.environ |= {"WORLD_SIZE": str(request["world"]), "MASTER_PORT": str(port)}
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            os.write(write, json.dumps(child(rank, request)).encode())
            os._exit(0)
        os.close(write)
        children[rank] = pid, read
    found = {}
    stopped = request.get("stop", [None])[0]
    for rank in sorted(there, key=lambda rank: rank == stopped):  # that one last
        pid, read = children[rank]
        if rank == stopped:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        found[rank] = json.loads(text) if text else -os.WTERMSIG(status)
    return [found[rank] for rank in there]


def child(rank, request):
    from regard.tasks import TASKS
    from regard.training import processes as module
    from regard.training import read_config, train

    run, values = Path(request["run"]), request["values"]
    if values["task"] == "largest":
        task = runpy.run_path(str(HERE / "conftest.py"))["Largest"]()
        config = read_config(values)
    else:
        config = read_config(values)
        stored = run if (run / "manifest.json").exists() else None
        task = TASKS[config.task].from_config(config, stored)
    if request.get("versions") == rank:
        module.versions = lambda: {"torch": "9.9"}
    if request.get("largest_file") and rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    if request.get("die_at") and rank == 0:
        runpy.run_path(str(HERE / "nursery.py"))["die_at"](request["die_at"], str(run))
    for name, number in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)):
        victim, step = request.get(name, (None, None))
        if victim == rank:
            task.loss = signalled(task.loss, step, number)
    try:
        resume = (run / "config.toml").exists()
        return train(task, config, run, resume=resume)._asdict()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"


def signalled(loss, step, number):
    """A loss that sends this process a signal when it is computed for the nth time."""
    calls = 0

    def compute(model, batch):
        nonlocal calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
        return loss(model, batch)

    return compute


if __name__ == "__main__":
    main()
