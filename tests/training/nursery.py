"""Forks a child that trains for every line on standard input; see `Nursery` in conftest.py."""

import json
import os
import resource
import runpy
import signal
import sys
from pathlib import Path

import torch
from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: F401  loaded once

from regard.training import read_config, train

LARGEST = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["Largest"]
FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")


def die_at(number, run):
    """Kill this process when it is about to touch the run's files for the nth time."""
    touched = 0

    def hook(event, arguments):
        nonlocal touched
        if event in FILE_EVENTS and str(arguments[0]).startswith(run):
            touched += 1
            if touched == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def child(request, answer):
    run = request["run"]
    if request.get("die_at"):
        die_at(request["die_at"], run)
    if request.get("largest_file"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    values = {"task": "largest", "seed": request.get("seed", 1), "training": request["training"]}
    task = LARGEST(poison=request.get("poison"))
    if request.get("die_in_evaluation"):
        task.evaluate = lambda model: os.kill(os.getpid(), signal.SIGKILL)
    try:
        config = read_config(values)
        outcome = train(task, config, Path(run), resume=Path(run, "config.toml").exists())
        os.write(answer, json.dumps(outcome._asdict()).encode())
    except Exception as error:
        os.write(answer, json.dumps(f"{type(error).__name__}: {error}").encode())


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(json.loads(line), write)
            os._exit(0)
        os.close(write)
        print(pid, flush=True)
        sys.stdin.readline()  # until then the process id stays the child's
        _, status = os.waitpid(pid, 0)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        print(text or -os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main()
