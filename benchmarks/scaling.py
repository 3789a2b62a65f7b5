"""Several processes, precisions and large corpora, measured: the figures of docs/scaling.md.

python -m benchmarks.scaling throughput     two processes of a thread, one process of two
python -m benchmarks.scaling precision      bfloat16 and float32: speed and loss
python -m benchmarks.scaling shard          the losses of FSDP2 and of DDP, step by step
python -m benchmarks.scaling faults         runs whose worker is killed at a random moment
python -m benchmarks.scaling memory         a corpus of 20 million pairs
python -m benchmarks.scaling growth         a training step against length and width
python -m benchmarks.scaling loop           a step of the loop against its parts by themselves
"""

import argparse
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from regard.models import build
from regard.tasks import TASKS
from regard.training import Silent, read_config
from regard.training import train as start
from regard.training.metrics import read_metrics
from regard.training.optimizer import AdamW

COMMANDS = ["throughput", "precision", "shard", "faults", "memory", "growth", "loop"]
COPY = ["data.count=2000", "data.valid_count=50", "data.tokens=2000", "model.dropout=0.1"]
SMALL = """
task = "translate"
data = { name = "copy" }
model = { kind = "transformer", dim = 64, heads = 4, hidden = 128, layers = 2 }
training = { lr = 1e-3, threads = 1, device = "cpu", log_every = 1 }
"""


def train(
    recipe: str, run: Path, settings: list[str], processes: int = 1, more: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start `regard train`, under torchrun if there are several processes."""
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), *more]
    command = [*start, "-m", "regard", "train", recipe, "--out", str(run)]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def finished(process: subprocess.Popen[bytes], run: Path) -> Path:
    """Wait for a run that must succeed."""
    if process.wait():
        raise SystemExit(f"{run} failed")
    return run


def logged(run: Path, key: str) -> list[float]:
    """The values of a key of `metrics.jsonl`."""
    return [line[key] for line in read_metrics(run / "metrics.jsonl") if key in line]


def throughput(folder: Path, steps: int) -> None:
    """Tokens per second of Multi30k's Transformer; the first interval is not counted."""
    each = max(1, steps // 4)
    settings = [f"training.steps={steps}", "training.epochs=", "training.minutes="]
    settings += [f"training.log_every={each}", "training.evaluate_every=1000000"]
    settings += ["data.valid_count=20", "training.warmup=10"]
    speeds = {}
    for processes, threads in ((1, 2), (2, 1)):
        run = folder / f"{processes}"
        own = [*settings, f"training.threads={threads}"]
        finished(train("multi30k", run, own, processes), run)
        speeds[processes] = statistics.median(logged(run, "tokens_per_second")[1:])
        print(f"{processes} × {threads} threads: {speeds[processes]:,.0f} tokens/s", flush=True)
    print(f"ratio {speeds[2] / speeds[1]:.3f}")


def precision(folder: Path, steps: int) -> None:
    """Speed and last loss of Multi30k's Transformer in both precisions."""
    settings = [f"training.steps={steps}", "training.epochs=", "training.minutes="]
    settings += [f"training.log_every={max(1, steps // 4)}", "data.valid_count=20"]
    settings += ["training.evaluate_every=1000000", "training.warmup=10", "training.threads=2"]
    for name in ("float32", "bfloat16"):
        run = folder / name
        finished(train("multi30k", run, [*settings, f"training.precision={name}"]), run)
        speed = statistics.median(logged(run, "tokens_per_second")[1:])
        losses, valid = logged(run, "loss"), logged(run, "valid/loss")
        print(f"{name}: {speed:,.0f} tokens/s, loss {losses[-1]:.4f}, valid {valid[-1]:.4f}")


def shard(folder: Path, steps: int) -> None:
    """The largest difference of the losses of DDP and FSDP2, without dropout."""
    settings = [*COPY, f"training.steps={steps}", "model.dropout=0.0"]
    losses = []
    for value in ("false", "true"):
        run = folder / value
        own = [*settings, f"distributed.shard={value}"]
        finished(train(str(folder / "small.toml"), run, own, 2), run)
        losses.append(logged(run, "loss"))
    pairs = list(zip(*losses, strict=True))
    apart = max(abs(one - other) / one for one, other in pairs)
    print(f"{len(pairs)} steps, loss {pairs[0][0]:.3f} to {pairs[-1][0]:.3f}: at most {apart:.1e}")


def growth() -> None:
    """Seconds of a step of 2,048 target tokens, as multiples of the first row."""
    torch.set_num_threads(1)
    for title, sizes in (("length", (32, 64, 128, 256, 512)), ("width", (64, 128, 256, 512))):
        first = None
        for size in sizes:
            length, dim = (size, 128) if title == "length" else (64, size)
            options: dict[str, Any] = {"dim": dim, "heads": 4, "hidden": 4 * dim, "layers": 2}
            model: Any = build(
                "transformer", source_vocabulary=1000, target_vocabulary=1000, **options
            )
            ids = torch.randint(4, 1000, (2048 // length, length))
            times = []
            for _ in range(5):
                began = time.perf_counter()
                loss = model.output(model(ids, None, ids)).logsumexp(-1).sum()
                loss.backward()
                times.append(time.perf_counter() - began)
            seconds = statistics.median(times[1:])
            first = first or seconds
            print(f"{title} {size}: {seconds * 1000:.0f} ms, {seconds / first:.2f} ×", flush=True)


class Clock(Silent):
    """Records when each step of a training ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def step(self, *_: Any) -> None:
        self.times.append(time.perf_counter())


def loop(folder: Path, steps: int) -> None:
    """Time of a step of `train`, of one process, against loss, gradient and Adam by themselves.

    The model is small, so that what the loop adds can be seen. Of each step the fastest of seven
    rounds counts.
    """
    config = read_config(
        {
            "task": "translate",
            "data": {"name": "copy", "count": 100 * steps, "valid_count": 5, "tokens": 400},
            "model": {"kind": "luong", "embedding": 8, "hidden": 16},
            "training": {"steps": steps, "threads": 1, "save_every": 10**6},
        }
    )
    task: Any = TASKS["translate"].from_config(config)
    fastest = [math.inf] * 2 * (steps - 1)
    for number in range(7):
        model, bare, whole = task.build().train(), Clock(), Clock()
        optimizer = AdamW(model, config.training)
        for step in range(steps):
            loss = task.loss(model, task.batch(0, step))
            loss.total.backward()
            optimizer.step(1e-3, loss.count)
            bare.step()
        start(task, config, folder / str(number), progress=whole)
        taken = [later - t for c in (bare, whole) for t, later in pairwise(c.times)]
        fastest = list(map(min, fastest, taken))
    sums = [sum(fastest[: steps - 1]), sum(fastest[steps - 1 :])]
    each = [f"{total / (steps - 1) * 1000:.3f} ms" for total in sums]
    print(f"a step: {each[0]}, by the loop {each[1]}, {sums[1] / sums[0]:.3f} ×")


def faults(folder: Path, runs: int, steps: int, seed: int) -> None:
    """How many runs, of which a worker is killed by SIGKILL, end with the same bytes."""
    settings = [*COPY, f"training.steps={steps}", "training.save_every=10"]
    recipe = str(folder / "small.toml")
    whole = folder / "whole"
    began = time.monotonic()
    finished(train(recipe, whole, settings, 2), whole)
    seconds = logged(whole, "seconds")[-1]
    expected, same = (whole / "model.safetensors").read_bytes(), 0
    print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
    rng = random.Random(seed)
    for number in range(runs):
        run = folder / str(number)
        process = train(recipe, run, settings, 2, ("--max-restarts", "3"))
        while not (run / "metrics.jsonl").exists():
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 0.9 * seconds))
        workers = _children(process.pid)
        victim = rng.choice(workers) if workers else None
        step = len(logged(run, "loss"))
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        finished(process, run)
        same += (run / "model.safetensors").read_bytes() == expected
        print(f"run {number}: killed at step {step}; {same} of {number + 1} the same", flush=True)


def memory(folder: Path, pairs: int, processes: int) -> None:
    """The most memory that no file backs, of any process, over 200 steps on generated pairs."""
    file = folder / "pairs.tsv"
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    for path, count in ((file, pairs), (folder / "valid.tsv", 50)):
        with path.open("w") as stream:
            for number in range(count):
                digits = [words[int(digit)] for digit in f"{number:08}"]
                stream.write(f"{' '.join(digits)}\t{' '.join(digits[::-1])}\n")
    settings = [f"data.{split}={folder / 'valid.tsv'}" for split in ("valid", "test")]
    settings += ["data.name=", f"data.train={file}", f"data.store={folder / 'store'}"]
    settings += ["data.source_tokenizer=words", "data.target_tokenizer=words", "data.tokens=2048"]
    settings += ["training.steps=200", "training.evaluate_every=1000", "training.log_every=50"]
    began, most, run = time.monotonic(), 0, folder / "run"
    process = train(str(folder / "small.toml"), run, settings, processes)
    first_step = None
    while process.poll() is None:
        most = max([most, *map(_private, _family(process.pid))])
        if first_step is None and (run / "metrics.jsonl").exists():
            first_step = time.monotonic() - began
        time.sleep(0.2)
    finished(process, run)
    print(f"{pairs:,} pairs: at most {most / 2**20:,.0f} MB of anonymous memory in a process")
    print(f"{first_step:.0f} s to the first step, {time.monotonic() - began:.0f} s in all")


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def _family(pid: int) -> list[int]:
    """A process and all its descendants: workers of torchrun, and those that encode for them."""
    return [pid, *(each for child in _children(pid) for each in _family(child))]


def _private(pid: int) -> int:
    """Bytes of memory that no file backs."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(found[1]) * 1024 if (found := re.search(r"RssAnon:\s+(\d+)", status)) else 0


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("--steps", type=int, help="of a run [default: 24, 60 or 200]")
    parser.add_argument("--runs", type=int, default=20, help="to kill")
    parser.add_argument("--seed", type=int, default=1, help="of the moments to kill at")
    parser.add_argument("--pairs", type=int, default=20_000_000, help="of the large corpus")
    parser.add_argument("--processes", type=int, default=1, help="that train on it")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small.toml").write_text(SMALL)
        if given.what == "throughput":
            throughput(folder, given.steps or 24)
        elif given.what == "precision":
            precision(folder, given.steps or 24)
        elif given.what == "shard":
            shard(folder, given.steps or 200)
        elif given.what == "faults":
            faults(folder, given.runs, given.steps or 60, given.seed)
        elif given.what == "growth":
            growth()
        elif given.what == "loop":
            loop(folder, given.steps or 200)
        else:
            memory(folder, given.pairs, given.processes)


if __name__ == "__main__":
    main()
