"""What `regard.attend` costs on top of `import torch`, in fresh interpreters, turn by turn.

    python -m benchmarks.import_time [--rounds 10]

The ratio of the medians should stay below 1.10.
"""

import argparse
import statistics
import subprocess
import sys

BAR = 1.10
TIMER = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds_to_import(module: str) -> float:
    """Time one import inside a new interpreter, without the interpreter's own start."""
    command = [sys.executable, "-c", TIMER.format(module)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds

    modules = ("torch", "regard.attention")
    for module in modules:
        seconds_to_import(module)  # bytecode and disk cache warm for both
    times: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(rounds):
        for module in modules:
            times[module].append(seconds_to_import(module))
    medians = {module: statistics.median(times[module]) for module in modules}
    for module in modules:
        print(f"import {module:<16} {medians[module]:.3f} s (best {min(times[module]):.3f})")
    ratio = medians["regard.attention"] / medians["torch"]
    print(f"ratio {ratio:.3f}, bar {BAR:.2f}: {'kept' if ratio <= BAR else 'MISSED'}")


if __name__ == "__main__":
    main()
