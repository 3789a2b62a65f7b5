"""A contest: one job done by regard and by its peers, on the same tensors, in one run."""

import argparse
import ctypes
import gc
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Job = Callable[[], Tensor]


@dataclass
class Contest:
    """What is computed, and who computes it.

    Args:
        ours: what regard runs
        peers: what others run, by name; they must give the same output
        leaves: tensors that get gradients when the backward pass is measured
        others: peers that compute another formula for the same purpose: timed, not compared
        tolerance: the largest relative difference that still counts as the same answer
    """

    ours: Job
    peers: dict[str, Job]
    leaves: Sequence[Tensor] = ()
    others: dict[str, Job] = field(default_factory=dict)
    tolerance: float = 1e-4


@dataclass
class Row:
    """One line of the answer; `ratio` is peer_seconds / seconds, bytes are peak extra memory."""

    case: str
    ours: str
    peer: str
    seconds: float | None
    peer_seconds: float | None
    ratio: float | None
    bytes: int | None
    peer_bytes: int | None
    max_error: float | None


def as_job(job: Job, leaves: Sequence[Tensor], *, backward: bool) -> Callable[[], list[Tensor]]:
    """The forward pass without gradients, or forward and backward pass."""
    if not backward:

        def forward() -> list[Tensor]:
            with torch.no_grad():
                return [job()]

        return forward
    upstream: list[Tensor] = []

    def both() -> list[Tensor]:
        output = job()
        if not upstream:
            generator = torch.Generator().manual_seed(1)
            upstream.append(torch.randn(output.shape, dtype=output.dtype, generator=generator))
        return [output.detach(), *torch.autograd.grad(output, leaves, upstream[0])]

    return both


def race(
    jobs: Sequence[Callable[[], list[Tensor]]], *, rounds: int, least: float = 0.01
) -> list[float]:
    """The best time of each job in seconds, taken in turns so that noise affects all equally."""
    best = [math.inf] * len(jobs)
    repeats = []
    for job in jobs:
        job()
        start = time.perf_counter()
        job()
        repeats.append(max(1, math.ceil(least / max(time.perf_counter() - start, 1e-9))))
    for _ in range(rounds):
        for index, job in enumerate(jobs):
            start = time.perf_counter()
            for _ in range(repeats[index]):
                job()
            best[index] = min(best[index], (time.perf_counter() - start) / repeats[index])
    return best


def largest_error(found: list[Tensor], truth: list[Tensor]) -> float:
    """The largest difference, relative to the largest entry of its tensor."""
    worst = 0.0
    for a, b in zip(found, truth, strict=True):
        scale = max(float(b.abs().max()), 1e-30) if b.numel() else 1.0
        worst = max(worst, float((a - b).abs().max()) / scale if b.numel() else 0.0)
    return worst


def extra_memory(job: Callable[[], object]) -> int:
    """Peak memory of one call above what the process held before it, in bytes (Linux).

    The first call compiles and fills caches; the second is measured.
    """
    job()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    job()
    return max(0, _status("VmHWM") - before)


def extra_memory_of(case: str, who: str) -> int | None:
    """`extra_memory` of a case, measured in a fresh process; None where it cannot run."""
    command = [sys.executable, "-m", "benchmarks.attention", "--memory-of", case, "--who", who]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False
    )
    return int(done.stdout.split()[-1]) if done.returncode == 0 and done.stdout.split() else None


def output_file(name: str) -> Path:
    """The value of `--json FILE`: refused now, not after minutes, if its directory is missing."""
    if not (path := Path(name)).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"directory {path.parent} does not exist")
    return path


def write_rows(file: Path | None, rows: Sequence[dict[str, Any]]) -> None:
    """Write what was measured so far as JSON, if a file was asked for."""
    if file is not None:
        from regard.system.files import atomic_file  # here: the gate measures older commits too

        with atomic_file(file) as part:
            part.write_text(json.dumps(rows, indent=2) + "\n")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/self/status")
