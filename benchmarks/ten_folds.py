"""Ten-fold cross-validation of the document classifier on the polarity dataset of Pang & Lee.

    python -m benchmarks.ten_folds [FOLD ...]

Each fold is tested by a model that was trained on the other nine, a part of which is held out for
validation. The tested fold is not used for any choice. It needs movie_reviews in
REGARD_DATA, and prints a line for each fold and the mean.
"""

import sys
import tempfile
from pathlib import Path

from regard.recipes import load_recipe
from regard.tasks.classify import ClassifyTask
from regard.training import read_config, train


def accuracy(fold: int) -> float:
    """Accuracy on one fold of a model trained on the others."""
    config = read_config(load_recipe("movie_reviews"), [f"data.fold={fold}"])
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(ClassifyTask.from_config(config), config, Path(folder) / "run")
    return outcome.metrics["test_accuracy"]


def main(folds: list[int]) -> None:
    """Print the accuracy of each fold, and the mean."""
    found = []
    for fold in folds:
        found.append(accuracy(fold))
        print(f"fold {fold}: {found[-1]:.3f}", flush=True)
    print(f"mean of {len(found)} folds: {sum(found) / len(found):.4f}")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or list(range(10)))
