"""Train a recipe with ten seeds: the mean of each figure, its deviation, and how long a run took.

    python -m benchmarks.ten_seeds graph data.name=cora

Arguments after the name are those of `regard train --set`. Runs are made in a temporary folder,
one after the other, on one thread. Both clocks are printed: on a machine with nothing else to do
they agree.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from regard.recipes import load_recipe
from regard.tasks import TASKS
from regard.training import read_config, train

SEEDS = range(1, 11)


def main(name: str, *overrides: str) -> None:
    """Print a line for each seed and one for all."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        config = read_config(load_recipe(name), [*overrides, f"seed={seed}"])
        wall, cpu = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            outcome = train(TASKS[config.task].from_config(config), config, Path(folder) / "run")
        metrics = {
            **outcome.metrics,
            "steps": float(outcome.step),
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
        }
        for key, value in metrics.items():
            found.setdefault(key, []).append(value)
        line = "  ".join(f"{key} {value:.4g}" for key, value in metrics.items())
        print(f"seed {seed:2}  {line}", flush=True)
    for key, values in found.items():
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        print(f"{key}: {mean:.4g} ± {deviation:.2g}, from {min(values):.4g} to {max(values):.4g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
