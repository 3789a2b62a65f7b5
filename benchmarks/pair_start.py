"""How the size of initial embeddings matters to a model that compares words.

    python -m benchmarks.pair_start

Trains the recipe tatoeba-pairs with initial entries of two sizes, other things equal, on one
thread, and prints accuracy and loss on the validation split. It needs REGARD_DATA.
"""

import tempfile
from pathlib import Path

import regard.models.pair
from regard.recipes import load_recipe
from regard.tasks.pair import PairTask
from regard.training import Silent, read_config, train

STARTS = (1.0, 0.1)


def metrics(start: float) -> dict[str, float]:
    """Train with initial entries of a size, and return the metrics of the validation split."""
    regard.models.pair.START = start
    config = read_config(load_recipe("tatoeba-pairs"), ["training.threads=1"])
    task = PairTask.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        return train(task, config, Path(folder) / "run", progress=Silent()).metrics


def main() -> None:
    """Print a line for each size."""
    print("start accuracy     loss")
    for start in STARTS:
        found = metrics(start)
        print(f"{start:>5} {found['accuracy']:>8.1%} {found['loss']:>8.3f}", flush=True)


if __name__ == "__main__":
    main()
